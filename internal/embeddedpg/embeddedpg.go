// Package embeddedpg runs a private Postgres for `paymentsd dev`, for the demo and for the tests:
// from the binaries of the machine (or fetched ones), on 127.0.0.1 only, with a random superuser
// password, as root or not. It needs a unix.
//
// Where the data lives. Postgres refuses to run as root, so under root it runs as the user
// `postgres`, or `nobody` where that does not exist, and its files belong to that user. They are in
// <Dir>/postgres, unless that user cannot enter Dir (a project under /root). Then they are in
// /var/lib/paymentsd-<hash of Dir> (or /var/tmp where /var/lib is not usable), mode 0700, and
// <Dir>/postgres.location says so. [Remove] deletes both. Deleting Dir by hand is fine: the next
// Start under that name discards what lies in the other place and begins afresh.
//
// Nothing outlives its owner. Stop ends Postgres; if the owner is killed, the kernel tells Postgres
// (Linux), and whatever is still running there is ended cleanly by the next Start. A lock keeps a
// second process off the same Dir.
package embeddedpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The superuser of the private cluster. It owns what migrations make.
const superuser = "postgres"

// Config says what to run. Only Dir is needed.
type Config struct {
	// Dir is the caller's folder; made if missing. All that Start keeps is in it or found from it.
	Dir string
	// Database is created if it is missing, and URL names it. Default "postgres".
	Database string
	// Settings are server settings by name, such as "fsync": "off". They win over the defaults,
	// which keep a commit durable.
	Settings map[string]string
	// Logger gets one line per start, stop and oddity. Postgres' own log is <Dir>/postgres.log.
	Logger *slog.Logger
	// StartTimeout bounds making and starting the cluster, crash recovery included. Default 2 minutes.
	StartTimeout time.Duration
	// BinDir is the folder of initdb and postgres. Empty: search the machine, then fetch.
	BinDir string
	// CacheDir keeps fetched binaries. Empty: the user's cache folder, /var/cache under root.
	CacheDir string
	// Repository is the base address binaries are fetched from. Empty: that of
	// fergusstrange/embedded-postgres.
	Repository string

	search func(context.Context) []string // tests replace candidates
}

// Server is a running private Postgres.
type Server struct {
	home *home
	proc *process
	url  string
	log  *slog.Logger
}

// Start makes the cluster on first use, ends what an earlier run may have left running in it, and
// returns once it answers. The error says what to do: install Postgres, stop the other process, or
// read the log whose last lines it carries.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("embeddedpg: Config.Dir is empty")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Database == "" {
		cfg.Database = "postgres"
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 2 * time.Minute
	}
	if cfg.search == nil {
		cfg.search = candidates
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	h, err := openHome(ctx, cfg.Dir, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("embeddedpg: %w", err)
	}
	s, err := start(ctx, cfg, h)
	if err != nil {
		h.close()
		return nil, fmt.Errorf("embeddedpg: %w", err)
	}
	return s, nil
}

// Remove deletes the cluster of dir, wherever it lies, and leaves the rest of dir alone. It fails
// while a process runs it.
func Remove(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := dropDeadPointer(dir); err != nil {
		return fmt.Errorf("embeddedpg: %w", err)
	}
	h, err := openHome(ctx, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("embeddedpg: %w", err)
	}
	defer h.close()
	if err := h.remove(ctx); err != nil {
		return fmt.Errorf("embeddedpg: remove the cluster of %s: %w", dir, err)
	}
	return nil
}

// URL connects as the superuser, to Config.Database. It is the same after a restart while its port
// is free.
func (s *Server) URL() string { return s.url }

// DataDir is where Postgres keeps its files: in Config.Dir, unless the user that it runs as cannot get there.
func (s *Server) DataDir() string { return s.home.data() }

// Done is closed when Postgres has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.proc.done }

// Stop ends Postgres: a fast shutdown, an immediate one when ctx ends first (the next start then
// recovers), and returns when no process is left. Calling it again is harmless.
func (s *Server) Stop(ctx context.Context) error {
	defer s.home.close()
	select {
	case <-s.proc.done:
		return nil
	default:
	}
	err := s.proc.stop(ctx)
	s.log.Debug("private Postgres stopped", "dir", s.home.dir, "err", err)
	return err
}

func start(ctx context.Context, cfg Config, h *home) (*Server, error) {
	bin, err := findBinaries(ctx, cfg, h.user, h.dataMajor())
	if err != nil {
		return nil, err
	}
	if err := stopOrphans(ctx, h.data(), cfg.Logger); err != nil {
		return nil, err
	}
	password, err := h.password()
	if err != nil {
		return nil, err
	}
	if h.dataMajor() == 0 {
		if err := initdb(ctx, bin, h, password, cfg.Settings["fsync"] == "off"); err != nil {
			return nil, err
		}
	}
	// A free port may be taken between our look and Postgres' bind, so this is tried a few times.
	const tries = 5
	for try := 1; ; try++ {
		port, err := h.port(try > 1)
		if err != nil {
			return nil, err
		}
		s, err := startOn(ctx, cfg, h, bin, port, password)
		if err == nil {
			cfg.Logger.Debug("private Postgres started", "dir", h.dir, "data", h.data(), "port", port, "bin", bin.dir)
			return s, nil
		}
		if try == tries || !strings.Contains(err.Error(), "could not bind") {
			return nil, err
		}
	}
}

func startOn(ctx context.Context, cfg Config, h *home, bin binaries, port int, password string) (*Server, error) {
	proc, err := spawnPostgres(bin, h, port, cfg.Settings)
	if err != nil {
		return nil, err
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	err = waitReady(ctx, proc, u.String())
	if err == nil {
		err = createDatabase(ctx, u.String(), cfg.Database)
	}
	if err == nil {
		err = h.rememberPort(port)
	}
	if err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("start Postgres: %w; the last lines of %s:\n%s", err, h.logPath(), h.logTail()), proc.stop(stopCtx))
	}
	u.Path = "/" + cfg.Database
	return &Server{home: h, proc: proc, url: u.String(), log: cfg.Logger}, nil
}

// waitReady returns when Postgres takes a connection, or with an error when it has ended.
func waitReady(ctx context.Context, proc *process, dsn string) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-proc.done:
			return fmt.Errorf("it ended: %w", proc.err)
		case <-ctx.Done():
			return fmt.Errorf("it does not answer (%w): %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func createDatabase(ctx context.Context, dsn, name string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, databaseExists, name).Scan(&there); err != nil || there {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	return err
}

const databaseExists = `select exists (select 1 from pg_database where datname = $1)`

func (h *home) password() (string, error) {
	path := filepath.Join(h.dir, "postgres.password")
	if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
		return string(b), nil
	}
	if h.dataMajor() != 0 {
		return "", fmt.Errorf("%s is gone, so the cluster in %s cannot be opened: start over (--fresh, or delete %s)", path, h.path, h.dir)
	}
	password := rand.Text()
	return password, os.WriteFile(path, []byte(password), 0o600)
}

// port is the one of the last run, so that a noted URL stays good, or a free one.
func (h *home) port(fresh bool) (int, error) {
	if b, err := os.ReadFile(filepath.Join(h.dir, "postgres.port")); err == nil && !fresh {
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", string(b))); err == nil {
			return l.Addr().(*net.TCPAddr).Port, l.Close()
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (h *home) rememberPort(port int) error {
	return os.WriteFile(filepath.Join(h.dir, "postgres.port"), []byte(strconv.Itoa(port)), 0o600)
}

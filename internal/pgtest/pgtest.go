// Package pgtest gives each test a migrated Postgres database of its own, in about 30 ms, copied from
// a template. A database is dropped when its test passes and kept, with its address printed, when it
// fails.
//
// The server is the one that TEST_DATABASE_URL names (`make test` starts one for its run), or the one
// that `make db` keeps running. Without either a test fails and says so; none is ever skipped.
//
// On Citus (TEST_CITUS_URL) no template can be copied: all tests share that one database, and each
// takes a fresh merchant from [DB.Merchant].
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"paymentsd/internal/postgres"
)

// URLFile is where `make db` leaves the address of its server, in the module's root.
const URLFile = ".paymentsd-testdb"

// maxConns keeps many packages' tests at once within one server's connections.
const maxConns = 8

// How long making, copying or dropping a database may take on a loaded machine.
const timeoutMax = 2 * time.Minute

// DB is one test's database.
type DB struct {
	// Pool runs as the service's role, with its privileges and no more.
	Pool *pgxpool.Pool

	// Shared is true on Citus: other tests' merchants are in the same tables.
	Shared bool

	t        testing.TB
	ownerURL string
}

// New gives t a migrated database, or fails it.
func New(t testing.TB) *DB {
	t.Helper()
	return open(t, os.Getenv)
}

func open(t testing.TB, getenv func(string) string) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeoutMax)
	defer cancel()
	db := &DB{t: t}
	if citus := getenv("TEST_CITUS_URL"); citus != "" {
		if err := prepareShared(ctx, citus); err != nil {
			t.Fatalf("prepare the database of TEST_CITUS_URL: %v", err)
		}
		db.ownerURL, db.Shared = citus, true
	} else {
		server, err := serverURL(getenv, ".")
		if err != nil {
			t.Fatal(err)
		}
		made, err := copyTemplate(ctx, server)
		if err != nil {
			t.Fatalf("make a test database: %v\nTo have a server %s.", err, howTo)
		}
		db.ownerURL = made
		t.Cleanup(func() { db.drop(server) })
	}
	pool, err := postgres.Open(ctx, postgres.Config{
		URL: db.ownerURL, Role: postgres.ServiceRole, MaxConns: maxConns, StatementTimeout: time.Minute, Name: "test",
	})
	if err != nil {
		t.Fatalf("open a test database: %v", err)
	}
	db.Pool = pool
	t.Cleanup(pool.Close) // before the drop: cleanups run last in, first out
	return db
}

// OwnerURL connects as the owner of the schema, for what the service may not do itself: migrations,
// looking into the catalogue, damaging rows on purpose.
func (db *DB) OwnerURL() string { return db.ownerURL }

// ServiceURL connects as the service's role: what a service process under test is given.
func (db *DB) ServiceURL() string {
	u, err := url.Parse(db.ownerURL)
	if err != nil {
		db.t.Fatalf("the test database's address cannot be read: %v", err)
	}
	q := u.Query()
	q.Set("role", postgres.ServiceRole)
	u.RawQuery = q.Encode()
	return u.String()
}

// Owner opens a connection as the owner. It is closed with the test.
func (db *DB) Owner() *pgx.Conn {
	db.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeoutMax)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.ownerURL)
	if err != nil {
		db.t.Fatalf("connect as the owner: %v", err)
	}
	db.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Merchant is a number that no other test uses. It makes no row.
func (db *DB) Merchant() int64 {
	const numbers = 738197504 // 22 x 32^5: what six characters of an acquirer reference hold
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]) % numbers)
}

func (db *DB) drop(server string) {
	if db.t.Failed() {
		db.t.Logf("the database of this failed test is kept while its server runs: %s", db.ownerURL)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeoutMax)
	defer cancel()
	u, err := url.Parse(db.ownerURL)
	if err != nil {
		db.t.Errorf("drop the test database: %v", err)
		return
	}
	err = withConn(ctx, server, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "drop database if exists "+pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()+" with (force)")
		return err
	})
	if err != nil {
		db.t.Errorf("drop the test database: %v", err)
	}
}

const howTo = "run `make test`, which brings its own Postgres, or `make db` in another terminal and this test again, " +
	"or set TEST_DATABASE_URL to a server whose user may create databases and roles"

// serverURL is the server that test databases are made on.
func serverURL(getenv func(string) string, dir string) (string, error) {
	if u := getenv("TEST_DATABASE_URL"); u != "" {
		return u, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	root, err := moduleRoot(dir)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(root, URLFile))
	if err != nil {
		return "", errors.New("there is no Postgres for this test: " + howTo)
	}
	return strings.TrimSpace(string(b)), nil
}

func withConn(ctx context.Context, dsn string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

func withDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("the test server's address must have the form postgres://user@host:port/name")
	}
	u.Path = "/" + name
	return u.String(), nil
}

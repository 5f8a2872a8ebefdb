package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"paymentsd/internal/postgres"
	"paymentsd/migrations"
)

const templateExists = `select exists (select 1 from pg_database where datname = $1 and datistemplate)`

const lockTests = `select pg_advisory_lock($1)`

const unlockTests = `select pg_advisory_unlock($1)`

const disconnectAll = `select count(pg_terminate_backend(a.pid)) from pg_stat_activity a where a.datname = $1`

// copyTemplate makes a database from the template of these migrations and returns its address.
func copyTemplate(ctx context.Context, server string) (made string, err error) {
	sum, err := migrationsSum()
	if err != nil {
		return "", err
	}
	template := "paymentsd_template_" + hex.EncodeToString(sum[:6])
	name := "paymentsd_test_" + strings.ToLower(rand.Text()[:16])
	err = withConn(ctx, server, func(conn *pgx.Conn) error {
		var there bool
		if err := conn.QueryRow(ctx, templateExists, template).Scan(&there); err != nil {
			return err
		}
		if !there {
			if err := makeTemplate(ctx, conn, server, template, sum); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, "create database "+name+" template "+template)
		return err
	})
	if err != nil {
		return "", err
	}
	return withDatabase(server, name)
}

// makeTemplate migrates a new database under another name and renames it when it is complete. Many
// test processes come here at once: one works and the others wait.
func makeTemplate(ctx context.Context, conn *pgx.Conn, server, template string, sum [sha256.Size]byte) error {
	lock := int64(binary.BigEndian.Uint64(sum[:8]))
	if _, err := conn.Exec(ctx, lockTests, lock); err != nil {
		return err
	}
	defer conn.Exec(context.WithoutCancel(ctx), unlockTests, lock) //nolint:errcheck // ends with the connection
	var there bool
	if err := conn.QueryRow(ctx, templateExists, template).Scan(&there); err != nil || there {
		return err
	}
	half := template + "_half"
	for _, ddl := range []string{"drop database if exists " + half + " with (force)", "create database " + half} {
		if _, err := conn.Exec(ctx, ddl); err != nil {
			return err
		}
	}
	dsn, err := withDatabase(server, half)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, dsn); err != nil {
		return err
	}
	if err := mayBecomeService(ctx, conn); err != nil {
		return err
	}
	// A connection that is just closing must not stand in the way of the rename.
	if _, err := conn.Exec(ctx, disconnectAll, half); err != nil {
		return err
	}
	for _, ddl := range []string{
		"alter database " + half + " rename to " + template,
		"alter database " + template + " with is_template true allow_connections false",
	} {
		if _, err := conn.Exec(ctx, ddl); err != nil {
			return fmt.Errorf("%s: %w", ddl, err)
		}
	}
	return nil
}

// mayBecomeService lets a login that is no superuser take the service's role.
func mayBecomeService(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "do $$ begin if not pg_has_role(current_user, '"+postgres.ServiceRole+"', 'member') then grant "+
		postgres.ServiceRole+" to current_user; end if; end $$")
	return err
}

// prepareShared migrates the one database of a Citus cluster, whoever comes first.
func prepareShared(ctx context.Context, dsn string) error {
	return withConn(ctx, dsn, func(conn *pgx.Conn) error {
		const lock = 0x7061796d // any number: only these tests use it
		if _, err := conn.Exec(ctx, lockTests, lock); err != nil {
			return err
		}
		if err := migrations.Up(ctx, dsn); err != nil {
			return err
		}
		return mayBecomeService(ctx, conn)
	})
}

// migrationsSum names the template: other migrations, other template.
func migrationsSum() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	err = fs.WalkDir(migrations.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(migrations.FS, path)
		fmt.Fprintf(h, "%s\x00%d\x00%s", path, len(b), b)
		return err
	})
	return [sha256.Size]byte(h.Sum(nil)), err
}

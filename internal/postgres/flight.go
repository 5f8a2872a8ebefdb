package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Statement is one of several that travel together. Read takes its rows, to the end.
type Statement struct {
	SQL  string
	Args []any
	Read func(pgx.Rows) error
}

const (
	beginTx    = "begin"
	commitTx   = "commit"
	rollbackTx = "rollback"
	hurryTx    = "set local lock_timeout = '100ms'"
)

// Patience is how long a flight in a hurry waits for a lock: longer than a commit that is just under way elsewhere
// mostly takes.
const Patience = 100 * time.Millisecond

// InOneFlight runs statements of one merchant, or on one Postgres of several, in one transaction and one round
// trip: BEGIN and COMMIT travel with them, and a single statement is its own transaction. After a
// server's error nothing is written; after any other, a commit may have happened. What loses a deadlock is
// run again, so Read may be called more than once. In a hurry a lock is waited for no longer than Patience
// (55P03); a single statement has to see to that itself. Sent is called when all is sent and nothing is
// answered yet.
func InOneFlight(ctx context.Context, conn *pgx.Conn, statements []Statement, hurry bool, sent func()) error {
	for try := 1; ; try++ {
		err := flight(ctx, conn, statements, hurry, sent)
		if conn.PgConn().TxStatus() == 'E' {
			// A connection in a failed transaction is of no use to the next.
			_, _ = conn.Exec(ctx, rollbackTx)
		}
		if err == nil || !IsDeadlock(err) || try == deadlockTries {
			return err
		}
	}
}

func flight(ctx context.Context, conn *pgx.Conn, statements []Statement, hurry bool, sent func()) error {
	batch, several := &pgx.Batch{}, len(statements) > 1
	first := 0 // answers that come before the statements'
	if several {
		batch.Queue(beginTx)
		first++
		if hurry {
			batch.Queue(hurryTx)
			first++
		}
	}
	for _, s := range statements {
		batch.Queue(s.SQL, s.Args...)
	}
	if several {
		batch.Queue(commitTx)
	}
	results := conn.SendBatch(ctx, batch)
	sent()
	if err := readFlight(results, statements, first); err != nil {
		_ = results.Close()
		return err
	}
	return results.Close() // with the commit's own answer, if there is one statement
}

func readFlight(results pgx.BatchResults, statements []Statement, first int) error {
	for range first {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for _, s := range statements {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		err = s.Read(rows)
		rows.Close()
		if err != nil {
			return err
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	if first > 0 {
		_, err := results.Exec()
		return err
	}
	return nil
}

const hasCitus = `select exists (select 1 from pg_extension where extname = 'citus')`

// IsCitus reports whether the schema is distributed: then one transaction writes one merchant's rows.
func IsCitus(ctx context.Context, db DB) (is bool, err error) {
	err = db.QueryRow(ctx, hasCitus).Scan(&is)
	return is, err
}

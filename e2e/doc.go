// Package e2e tests whole processes: the real binary, built with its fault points, runs as replicas on
// a real Postgres and against simulated acquirers. The processes are killed, stopped and restarted,
// and afterwards the acquirers' books and ours are compared.
//
// It holds tests only.
package e2e

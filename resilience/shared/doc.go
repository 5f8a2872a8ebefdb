// Package shared is the breaker and the retry budget of package resilience, agreed by every replica
// through Postgres: twelve replicas act as one client of each acquirer.
//
// A closed breaker asks Postgres nothing: a call reads one pointer and adds to counters of this
// process. Once a second each replica sends what it counted at all acquirers in one statement, and
// reads the sums of all. Any replica whose sums pass the rule opens the breaker by compare-and-set on
// the row's epoch, and a notification in the same statement tells the others. An open breaker admits
// one probe in the whole cluster, under a lease by the database's clock, fenced by the epoch.
//
// When Postgres is slow or away the last state stands: nothing waits for it longer than a fraction of
// a second, there is no probe without a lease and no retry without a token, and no result of a call is
// ever replaced by an error of the store. docs/resilience.md has the rest.
package shared

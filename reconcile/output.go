package reconcile

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"paymentsd/money"
)

// Outputs are the ways in which a report can be written.
func Outputs() []string { return []string{"table", "json", "csv"} }

// Write writes the report as a table for a person, as JSON, or its exceptions as CSV. The same state of
// things gives the same bytes: there is no clock in it but the day of the report.
func (r Report) Write(w io.Writer, output string) error {
	switch output {
	case "json":
		return writeJSON(w, r.json())
	case "csv":
		return WriteExceptions(w, "csv", r.Exceptions, r.AsOf)
	case "table":
		return r.writeTable(w)
	}
	return fmt.Errorf("%w: output %q is not one of %s", ErrInvalidRequest, output, strings.Join(Outputs(), ", "))
}

func (r Report) writeTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Reconciliation of %s as of %s\n", r.Acquirer, r.AsOf.Format(time.DateOnly))
	if r.Unfinished != "" {
		fmt.Fprintf(w, "NOT FINISHED: %s\n", r.Unfinished)
	}
	fmt.Fprint(w, "\nFILE\tSTATUS\tREPORT\tPERIOD\tLINES\tNEW\tKNOWN\tBAD\tREMARK\n")
	for _, f := range r.Files {
		period := "-"
		if !f.File.From.IsZero() {
			period = f.File.From.Format(time.RFC3339) + "/" + f.File.To.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", oneLine(f.Name), f.status(), oneLine(f.File.BusinessID()), period,
			f.File.Lines, f.File.Counted, f.File.Repeated, f.File.Bad, f.remark())
	}
	n := r.Lines
	fmt.Fprintf(w, "\nLines: %d matched, %d duplicate, %d unmatched, %d waiting, %d withdrawn, %d not examined, %d of no charge, %d known, %d bad\n",
		n.Matched, n.Duplicate, n.Unmatched, n.Waiting, n.Withdrawn, n.NotExamined, n.NoMerchant, n.Repeated, n.Bad)
	fmt.Fprintf(w, "Resolved by these files: %s\n", totals(r.Resolved))
	fmt.Fprintf(w, "Still unknown: %s\n", totals(r.Unknown))
	fmt.Fprintf(w, "Exceptions open: %d, at risk: %s\n", len(r.Exceptions), totals(r.AtRisk))
	if err := w.Flush(); err != nil || len(r.Exceptions) == 0 {
		return err
	}
	fmt.Fprintln(out)
	return WriteExceptions(out, "table", r.Exceptions, r.AsOf)
}

func (f ReportedFile) status() string {
	if f.Duplicate() != "" && f.File.Status != Quarantined {
		return string(Duplicate)
	}
	return string(f.File.Status)
}

func (f ReportedFile) remark() string {
	parts := []string{}
	if d := f.Duplicate(); d != "" {
		parts = append(parts, "the same bytes as "+oneLine(d))
	}
	if f.File.Reason != "" {
		parts = append(parts, oneLine(f.File.Reason))
	}
	if len(f.File.Ignored) > 0 {
		parts = append(parts, "columns not used: "+oneLine(strings.Join(f.File.Ignored, ", ")))
	}
	return strings.Join(parts, "; ")
}

func totals(all []Total) string {
	if len(all) == 0 {
		return "none"
	}
	parts := make([]string, 0, len(all))
	for _, t := range all {
		parts = append(parts, fmt.Sprintf("%d %s (%s %s)", t.Count, strings.ReplaceAll(t.Word, "_", " "), t.Amount, t.Amount.Currency()))
	}
	return strings.Join(parts, ", ")
}

// oneLine keeps what others wrote within its cell.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// WriteExceptions writes exceptions as a table, JSON or CSV, with their age on a day.
func WriteExceptions(w io.Writer, output string, exceptions []Exception, asOf time.Time) error {
	switch output {
	case "json":
		list := make([]exceptionJSON, 0, len(exceptions))
		for _, e := range exceptions {
			list = append(list, e.json(asOf))
		}
		return writeJSON(w, list)
	case "csv":
		return writeExceptionsCSV(w, exceptions, asOf)
	}
	for _, e := range exceptions {
		risk := ""
		if c := e.AtRisk.Currency(); c != "" {
			risk = fmt.Sprintf(", %s %s at risk", e.AtRisk, c)
		}
		fmt.Fprintf(w, "%s  %s  %s  %d business day(s)%s\n", strings.ToUpper(string(e.Severity)), e.Class, e.ID, e.Age(asOf), risk)
		if e.Closed != nil {
			fmt.Fprintf(w, "  closed  by %s: %s\n", oneLine(e.Closed.By), oneLine(e.Closed.Reason))
		}
		for _, row := range [][2]string{{"ours", e.Ours}, {"theirs", e.Theirs}, {"why", e.Detail}, {"about", e.place()}, {"do", e.Action()}} {
			if row[1] != "" {
				fmt.Fprintf(w, "  %-7s %s\n", row[0], oneLine(row[1]))
			}
		}
	}
	return nil
}

// place is where to look.
func (e Exception) place() string {
	parts := []string{}
	if e.ChargeID != "" {
		parts = append(parts, e.ChargeID)
	}
	if e.AcqRef != "" {
		parts = append(parts, "reference "+e.AcqRef)
	}
	if e.FileID != "" {
		at := "file " + e.FileID
		if e.LineNo > 0 {
			at += " line " + strconv.Itoa(e.LineNo)
		}
		parts = append(parts, at)
	}
	return strings.Join(parts, ", ")
}

func writeExceptionsCSV(out io.Writer, exceptions []Exception, asOf time.Time) error {
	w := csv.NewWriter(out)
	rows := [][]string{{"id", "acquirer", "class", "severity", "age_business_days", "since", "at_risk", "currency", "merchant_id", "charge_id",
		"acq_ref", "file_id", "line", "ours", "theirs", "detail", "action", "closed_by", "close_reason"}}
	for _, e := range exceptions {
		j := e.json(asOf)
		line, merchant := "", ""
		if e.LineNo > 0 {
			line = strconv.Itoa(e.LineNo)
		}
		if e.Merchant != nil {
			merchant = strconv.FormatInt(int64(*e.Merchant), 10)
		}
		rows = append(rows, []string{j.ID, j.Acquirer, j.Class, j.Severity, strconv.Itoa(j.Age), j.Since, j.AtRisk, j.Currency, merchant,
			j.ChargeID, j.AcqRef, j.FileID, line, j.Ours, j.Theirs, j.Detail, j.Action, j.ClosedBy, j.CloseReason})
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = inert(oneLine(cell))
		}
	}
	return w.WriteAll(rows)
}

// inert keeps a spreadsheet from running what an acquirer's file says.
func inert(s string) string {
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}

type exceptionJSON struct {
	ID          string `json:"id"`
	Acquirer    string `json:"acquirer"`
	Class       string `json:"class"`
	Severity    string `json:"severity"`
	Age         int    `json:"age_business_days"`
	Since       string `json:"since"`
	AtRisk      string `json:"at_risk,omitempty"`
	Currency    string `json:"currency,omitempty"`
	Merchant    *int64 `json:"merchant_id,omitempty"`
	ChargeID    string `json:"charge_id,omitempty"`
	AcqRef      string `json:"acq_ref,omitempty"`
	FileID      string `json:"file_id,omitempty"`
	Line        int    `json:"line,omitempty"`
	Ours        string `json:"ours"`
	Theirs      string `json:"theirs"`
	Detail      string `json:"detail"`
	Action      string `json:"action"`
	ClosedBy    string `json:"closed_by,omitempty"`
	CloseReason string `json:"close_reason,omitempty"`
}

func (e Exception) json(asOf time.Time) exceptionJSON {
	j := exceptionJSON{
		ID: e.ID, Acquirer: e.Acquirer, Class: string(e.Class), Severity: string(e.Severity), Age: e.Age(asOf),
		Since: e.Since.Format(time.DateOnly), Merchant: (*int64)(e.Merchant), ChargeID: e.ChargeID, AcqRef: e.AcqRef,
		FileID: e.FileID, Line: e.LineNo, Ours: e.Ours, Theirs: e.Theirs, Detail: e.Detail, Action: e.Action(),
	}
	if c := e.AtRisk.Currency(); c != "" {
		j.AtRisk, j.Currency = e.AtRisk.String(), string(c)
	}
	if e.Closed != nil {
		j.ClosedBy, j.CloseReason = e.Closed.By, e.Closed.Reason
	}
	return j
}

type totalJSON struct {
	Word     string         `json:"what"`
	Count    int64          `json:"count"`
	Amount   string         `json:"amount"`
	Currency money.Currency `json:"currency"`
}

type fileJSON struct {
	Name     string `json:"name"`
	ID       string `json:"id"`
	Status   string `json:"status"`
	Class    string `json:"class,omitempty"`
	Report   string `json:"report"`
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"`
	Lines    int64  `json:"lines"`
	Counted  int64  `json:"counted"`
	Repeated int64  `json:"repeated"`
	Bad      int64  `json:"bad"`
	Added    int64  `json:"added"`
	Removed  int64  `json:"removed"`
	Changed  int64  `json:"changed"`
	Remark   string `json:"remark,omitempty"`
}

type reportJSON struct {
	Acquirer   string           `json:"acquirer"`
	AsOf       string           `json:"as_of"`
	Status     RunStatus        `json:"status"`
	Unfinished string           `json:"unfinished,omitempty"`
	Files      []fileJSON       `json:"files"`
	Lines      map[string]int64 `json:"lines"`
	Resolved   []totalJSON      `json:"resolved"`
	Unknown    []totalJSON      `json:"unknown"`
	AtRisk     []totalJSON      `json:"at_risk"`
	Exceptions []exceptionJSON  `json:"exceptions"`
}

func (r Report) json() reportJSON {
	n := r.Lines
	j := reportJSON{
		Acquirer: r.Acquirer, AsOf: r.AsOf.Format(time.DateOnly), Status: r.Status(), Unfinished: r.Unfinished,
		Files: []fileJSON{}, Exceptions: []exceptionJSON{},
		Lines: map[string]int64{"matched": n.Matched, "duplicate": n.Duplicate, "unmatched": n.Unmatched, "waiting": n.Waiting,
			"withdrawn": n.Withdrawn, "not_examined": n.NotExamined, "no_charge": n.NoMerchant, "repeated": n.Repeated, "bad": n.Bad},
		Resolved: totalsJSON(r.Resolved), Unknown: totalsJSON(r.Unknown), AtRisk: totalsJSON(r.AtRisk),
	}
	for _, f := range r.Files {
		file := fileJSON{
			Name: f.Name, ID: f.File.ID, Status: f.status(), Class: f.File.Class, Report: f.File.BusinessID(), Lines: f.File.Lines,
			Counted: f.File.Counted, Repeated: f.File.Repeated, Bad: f.File.Bad, Added: f.File.Added, Removed: f.File.Removed,
			Changed: f.File.Changed, Remark: f.remark(),
		}
		if !f.File.From.IsZero() {
			file.From, file.To = f.File.From.Format(time.RFC3339), f.File.To.Format(time.RFC3339)
		}
		j.Files = append(j.Files, file)
	}
	for _, e := range r.Exceptions {
		j.Exceptions = append(j.Exceptions, e.json(r.AsOf))
	}
	return j
}

func totalsJSON(all []Total) []totalJSON {
	out := make([]totalJSON, 0, len(all))
	for _, t := range all {
		out = append(out, totalJSON{Word: t.Word, Count: t.Count, Amount: t.Amount.String(), Currency: t.Amount.Currency()})
	}
	return out
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"paymentsd/reconcile"
)

type fileView struct {
	Object         string   `json:"object"`
	ID             string   `json:"id"`
	Acquirer       string   `json:"acquirer"`
	Format         string   `json:"format"`
	Name           string   `json:"name"`
	SHA256         string   `json:"sha256"`
	Bytes          int64    `json:"bytes"`
	Account        string   `json:"account,omitempty"`
	Sequence       int64    `json:"sequence,omitempty"`
	Replaces       int64    `json:"replaces,omitempty"`
	From           string   `json:"from,omitempty"`
	To             string   `json:"to,omitempty"`
	IgnoredColumns []string `json:"ignored_columns"`
	Status         string   `json:"status"`
	Class          string   `json:"class,omitempty"`
	Reason         string   `json:"reason,omitempty"`
	Lines          int64    `json:"lines"`
	Counted        int64    `json:"counted"`
	Repeated       int64    `json:"repeated"`
	Bad            int64    `json:"bad"`
	Added          int64    `json:"added"`
	Removed        int64    `json:"removed"`
	Changed        int64    `json:"changed"`
	ReceivedAt     string   `json:"received_at"`
}

func viewFile(f reconcile.File) fileView {
	return fileView{
		Object: "settlement_file", ID: f.ID, Acquirer: f.Acquirer, Format: f.Format, Name: f.Name,
		SHA256: fmt.Sprintf("%x", f.SHA256), Bytes: f.Bytes, Account: f.Account, Sequence: f.Sequence, Replaces: f.Replaces,
		From: optionalTime(f.From), To: optionalTime(f.To), IgnoredColumns: append([]string{}, f.Ignored...),
		Status: string(f.Status), Class: f.Class, Reason: f.Reason,
		Lines: f.Lines, Counted: f.Counted, Repeated: f.Repeated, Bad: f.Bad, Added: f.Added, Removed: f.Removed, Changed: f.Changed,
		ReceivedAt: timestamp(f.ReceivedAt),
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func (a *api) listFiles(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	filter := reconcile.FileFilter{
		Acquirer: q.text("acquirer"),
		Status: reconcile.FileStatus(q.oneOf("status", string(reconcile.Accepted), string(reconcile.Duplicate),
			string(reconcile.Quarantined), string(reconcile.Superseded))),
		StartingAfter: q.text("starting_after"), Limit: q.limit(),
	}
	if err := q.finish(); err != nil {
		return err
	}
	files, more, err := a.Reconciliation.Files(r.Context(), filter)
	if err != nil {
		return err
	}
	return writeList(w, files, more, viewFile)
}

// uploadTime is how long a settlement file may take to arrive and to be taken in: longer than the
// server allows for other requests.
const uploadTime = 5 * time.Minute

// postFile takes a settlement file in. What its lines prove is for the next run to say.
func (a *api) postFile(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	acquirer, format, name := q.required("acquirer"), q.required("format"), q.required("name")
	if err := q.finish(); err != nil {
		return err
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/octet-stream" && mediaType != "text/csv" || r.Header.Get("Content-Encoding") != "" {
		return refuse(codeContentType, "Send the file as it is, as application/octet-stream or text/csv, without a content encoding.")
	}
	control := http.NewResponseController(w)
	until := a.Now().Add(uploadTime) // best effort: a server without deadlines needs no later ones
	_ = control.SetReadDeadline(until)
	_ = control.SetWriteDeadline(until)

	body := &watchedReader{in: http.MaxBytesReader(w, r.Body, a.Limits.FileBytesMax)}
	imported, err := a.Reconciliation.ImportFile(r.Context(), acquirer, format, name, body)
	if err != nil {
		return a.importProblem(err, body.err)
	}
	x := exchangeOf(r)
	detail := fmt.Sprintf("%s: %s", imported.File.Status, imported.File.Name)
	if err := a.Resolver.AuditAppend(r.Context(), x.principal.Actor(), "settlement_file.import", imported.File.ID, detail, x.id); err != nil {
		return fmt.Errorf("file %s was taken in, and the audit log could not be written: %w", imported.File.ID, err)
	}
	switch {
	case !imported.Usable():
		return &quarantinedError{file: imported.File}
	case imported.Known:
		writeJSON(w, typeJSON, http.StatusOK, viewFile(imported.File))
	default:
		writeJSON(w, typeJSON, http.StatusCreated, viewFile(imported.File))
	}
	return nil
}

// importProblem says whose fault it is that a file was not taken in. Sent is what went wrong with the
// body while it was read.
func (a *api) importProblem(err, sent error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](sent); ok {
		return refuse(codeBodyTooLarge, fmt.Sprintf("The file has more than %d bytes: hand it to the nightly job instead.", tooLarge.Limit))
	}
	switch {
	case sent != nil:
		return refuse(codeBodyIncomplete, "")
	case errors.Is(err, reconcile.ErrAcquirer):
		return refuse(codeParameterInvalid, "", fieldError{Parameter: "acquirer", Code: "invalid", Detail: "must be the name of an acquirer that a merchant is routed to, 1 to 40 of a-z, 0-9, _ and -"})
	case errors.Is(err, reconcile.ErrInvalidRequest):
		return refuse(codeParameterInvalid, "", fieldError{Parameter: "format", Code: "invalid", Detail: "is not a settlement format that is known here"})
	}
	return err
}

// quarantinedError is a file that failed a control: it is on record, and proves nothing.
type quarantinedError struct{ file reconcile.File }

func (e *quarantinedError) Error() string {
	return fmt.Sprintf("settlement file %s is in quarantine (%s): %s", e.file.ID, e.file.Class, e.file.Reason)
}

// watchedReader remembers what went wrong with a body, whatever its reader makes of it.
type watchedReader struct {
	in  io.Reader
	err error
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// required reads a parameter that must be there.
func (q *query) required(name string) string {
	if _, ok := q.values[name]; !ok {
		q.wrong(name, "required", "is missing")
	}
	return q.text(name)
}

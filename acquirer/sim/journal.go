package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// entry is one line of the book's file.
type entry struct {
	Record *Record `json:"record,omitempty"`
	Issue  *issue  `json:"issue,omitempty"`
}

const entryBytesMax = 64 << 10

var errJournalBroken = errors.New("the book's file could not be written; restart the simulator")

// journal is the append-only file under a book: one JSON entry a line, synced before it counts.
type journal struct {
	file   *os.File
	broken bool
}

// openJournal replays the file into each and opens it for more. A last line without its end was
// never answered: it is cut off, and its length returned. Damage anywhere else is an error.
func openJournal(path string, each func(entry) error) (*journal, int, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("book: %w", err)
	}
	torn, err := replay(file, path, each)
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return &journal{file: file}, torn, nil
}

func replay(file *os.File, path string, each func(entry) error) (torn int, err error) {
	if err := lockFile(file); err != nil {
		return 0, fmt.Errorf("book %s is in use by another simulator: %w", path, err)
	}
	reader := bufio.NewReaderSize(file, entryBytesMax)
	good := int64(0)
	for line := 1; ; line++ {
		text, err := reader.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			torn = len(text)
			break
		}
		if err != nil {
			return 0, fmt.Errorf("book %s, line %d: %w", path, line, err)
		}
		var e entry
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil {
			return 0, fmt.Errorf("book %s, line %d is damaged: %w", path, line, err)
		}
		if err := each(e); err != nil {
			return 0, fmt.Errorf("book %s, line %d is damaged: %w", path, line, err)
		}
		good += int64(len(text))
	}
	if err := file.Truncate(good); err != nil {
		return 0, fmt.Errorf("book %s: cut off the torn record: %w", path, err)
	}
	_, err = file.Seek(good, io.SeekStart)
	return torn, err
}

// append writes and syncs one entry. After a failure nobody knows what is in the file, so the
// journal refuses everything from then on.
func (j *journal) append(e entry) error {
	if j.broken {
		return errJournalBroken
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err = j.file.Write(append(line, '\n')); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.broken = true
		return fmt.Errorf("%w: %w", errJournalBroken, err)
	}
	return nil
}

// close gives the file and its lock back; it may be called twice.
func (j *journal) close() error {
	j.broken = true
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

// syncDir makes a new file's name durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

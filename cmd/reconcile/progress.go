package main

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"paymentsd/reconcile"
)

// progress tells what a run is doing: by a bar where a person looks on, in plain lines elsewhere.
type progress struct {
	out   io.Writer
	quiet bool
	bar   *progressbar.ProgressBar // nil if out is no terminal
	stage string
	count int
}

// newProgress writes to out, which is a terminal or is not.
func newProgress(out io.Writer, quiet bool) *progress {
	p := &progress{out: out, quiet: quiet}
	if f, ok := out.(*os.File); ok && !quiet && term.IsTerminal(int(f.Fd())) {
		const unknown = -1
		p.bar = progressbar.NewOptions(unknown, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("reconcile"),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionClearOnFinish(), progressbar.OptionSpinnerType(14))
	}
	return p
}

// plainEvery is how many references or lines go by between two plain lines.
const plainEvery = 50_000

func (p *progress) update(e reconcile.Progress) {
	if p.quiet {
		return
	}
	if e.Stage != p.stage {
		p.stage, p.count = e.Stage, 0
	}
	if p.bar != nil {
		p.bar.Describe(e.Stage)
		if e.Text != "" {
			_ = p.bar.Clear()
			fmt.Fprintln(p.out, e.Text)
			return
		}
		_ = p.bar.Set(e.Done)
		return
	}
	if e.Text != "" {
		fmt.Fprintln(p.out, e.Text)
		return
	}
	if e.Done-p.count >= plainEvery {
		p.count = e.Done
		fmt.Fprintf(p.out, "%s: %d done\n", e.Stage, e.Done)
	}
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

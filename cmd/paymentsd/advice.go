package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"paymentsd/payment"
	"paymentsd/resilience/advice"
)

// adviceReport is what advise says; its JSON is for other programs to read.
type adviceReport struct {
	From        time.Time        `json:"from"`
	To          time.Time        `json:"to"`
	Replicas    int              `json:"replicas"`
	ReplicasHow string           `json:"replicas_how"`
	InLine      bool             `json:"in_line"`
	Acquirers   []acquirerAdvice `json:"acquirers"`
	// Unconfigured had traffic and are not in the configuration: they were not judged.
	Unconfigured []string `json:"unconfigured"`
}

type acquirerAdvice struct {
	Acquirer    string          `json:"acquirer"`
	Attempts    int64           `json:"attempts"`
	Calls       int64           `json:"calls"`
	Retries     int64           `json:"retries"`
	Failures    int64           `json:"failures"`
	UsualSecond int64           `json:"calls_in_a_usual_second"`
	BusySecond  int64           `json:"calls_in_a_busy_second"`
	UsualMinute int64           `json:"calls_in_a_usual_minute"`
	P50         string          `json:"p50"`
	P99         string          `json:"p99"`
	P999        string          `json:"p99_9"`
	Settings    []settingAdvice `json:"settings"`
}

// settingAdvice has values as the configuration writes them.
type settingAdvice struct {
	Setting    string         `json:"setting"`
	Configured string         `json:"configured"`
	Suggested  string         `json:"suggested,omitempty"` // if it is out of line, and something else would not be
	Verdict    advice.Verdict `json:"verdict"`
	Why        string         `json:"why"`
}

func newAdviceReport(settings config, traffic []advice.Traffic, period payment.TrafficQuery, replicas int, how string) adviceReport {
	report := adviceReport{
		From: period.From, To: period.To, Replicas: replicas, ReplicasHow: how, InLine: true,
		Acquirers: []acquirerAdvice{}, Unconfigured: []string{},
	}
	seen := map[string]advice.Traffic{}
	for _, t := range traffic {
		seen[t.Acquirer] = t
	}
	for _, a := range settings.Acquirers {
		one := adviseOne(seen[a.Name], a.Name, advice.Configured{
			Settings: a.policies(), Timeout: a.Timeout, StoreTime: settings.Charge.StoreTime, ChargeBudget: settings.Charge.Budget, Replicas: replicas,
		})
		for _, s := range one.Settings {
			report.InLine = report.InLine && s.Verdict != advice.OutOfLine
		}
		report.Acquirers = append(report.Acquirers, one)
		delete(seen, a.Name)
	}
	for _, t := range traffic {
		if _, left := seen[t.Acquirer]; left {
			report.Unconfigured = append(report.Unconfigured, t.Acquirer)
		}
	}
	return report
}

func adviseOne(t advice.Traffic, name string, c advice.Configured) acquirerAdvice {
	rates := advice.Describe(t)
	at := func(num, den int64) string { return t.Answered.Quantile(num, den).Round(time.Millisecond).String() }
	one := acquirerAdvice{
		Acquirer: name, Attempts: t.Attempts, Calls: t.Calls, Retries: t.Retries, Failures: t.Failures,
		UsualSecond: rates.UsualSecond, BusySecond: rates.BusySecond, UsualMinute: rates.UsualMinute,
		P50: at(1, 2), P99: at(99, 100), P999: at(999, 1000),
	}
	for _, f := range advice.Judge(t, c) {
		s := settingAdvice{Setting: f.Setting, Configured: f.Text(f.Configured), Verdict: f.Verdict, Why: f.Why}
		if f.Suggested != f.Configured && f.Verdict == advice.OutOfLine {
			s.Suggested = f.Text(f.Suggested)
		}
		one.Settings = append(one.Settings, s)
	}
	return one
}

func (r adviceReport) write(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	fmt.Fprintf(out, "Attempts that began from %s to %s, and %d replicas (%s).\n",
		r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), r.Replicas, r.ReplicasHow)
	wrong, judged := 0, 0
	for _, a := range r.Acquirers {
		fmt.Fprintf(out, "\n%s: %d calls in %d attempts, %d failed. A usual second has %d calls, a busy one %d. p50 %s, p99 %s, p99.9 %s.\n\n",
			a.Acquirer, a.Calls, a.Attempts, a.Failures, a.UsualSecond, a.BusySecond, a.P50, a.P99, a.P999)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "SETTING\tCONFIGURED\tSUGGESTED\tVERDICT\tWHY")
		for _, s := range a.Settings {
			suggested := s.Suggested
			if suggested == "" {
				suggested = "-"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", s.Setting, s.Configured, suggested, s.Verdict, s.Why)
			if s.Verdict == advice.OutOfLine {
				wrong++
			}
			if s.Verdict != advice.NotJudged {
				judged++
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, name := range r.Unconfigured {
		fmt.Fprintf(out, "\n%s had attempts and is not in the configuration: it was not judged.\n", name)
	}
	_, err := fmt.Fprintf(out, "\n%d of %d settings that could be judged are out of line.\n", wrong, judged)
	return err
}

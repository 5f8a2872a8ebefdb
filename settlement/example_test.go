package settlement_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"paymentsd/money"
	"paymentsd/settlement"
)

func must(s string, c money.Currency) money.Amount {
	a, err := money.Parse(s, c)
	if err != nil {
		log.Fatal(err)
	}
	return a
}

func exampleHeader() settlement.Header {
	return settlement.Header{
		Acquirer: "north", Account: "acc-eu", Sequence: 7,
		From: time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC),
	}
}

func exampleLine() settlement.Line {
	return settlement.Line{
		ID: "N7-1", Kind: settlement.Capture, Reference: "A0001K3F9QZ7WXT2M8RB", CaptureID: "cap_81",
		Gross: must("49.99", "USD"), Fee: must("1.55", "USD"), Net: must("48.44", "USD"),
		OccurredAt: time.Date(2026, 11, 28, 10, 15, 0, 0, time.UTC), Payout: "po_7",
	}
}

func ExampleWriter() {
	w := settlement.NewWriter(os.Stdout, exampleHeader())
	if err := w.Write(exampleLine()); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// header,paymentsd-settlement,1,north,acc-eu,2026-11-28T00:00:00Z,2026-11-29T00:00:00Z,7,0
	// columns,id,kind,reference,capture_id,currency,gross,fee,net,occurred_at,payout
	// line,N7-1,capture,A0001K3F9QZ7WXT2M8RB,cap_81,USD,49.99,1.55,48.44,2026-11-28T10:15:00Z,po_7
	// sum,USD,capture,1,49.99,1.55,48.44
	// trailer,1,928b0da1859dacdfadba5ce8c5c60c40a239cd84c3c9d3abc2201a46b9a11d7f
}

// A file is good only when the sequence has ended without an error other than a *LineError, so
// nothing of it may be acted on before.
func ExampleFormat() {
	var file bytes.Buffer
	w := settlement.NewWriter(&file, exampleHeader())
	if err := errors.Join(w.Write(exampleLine()), w.Close()); err != nil {
		log.Fatal(err)
	}
	damaged := strings.Replace(file.String(), "48.44,2026", "48.4O,2026", 1)

	format, err := settlement.FormatNamed("canonical")
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{file.String(), damaged} {
		header, lines, err := format.Open(strings.NewReader(text))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("file", header.BusinessID())
		for line, err := range lines {
			if err == nil {
				fmt.Println("line", line.Number, line.Kind, line.Gross, line.Gross.Currency())
				continue
			}
			fmt.Println(settlement.ClassOf(err))
		}
	}
	// Output:
	// file north/acc-eu/7
	// line 3 capture 49.99 USD
	// file north/acc-eu/7
	// bad_amount
	// hash_mismatch
}

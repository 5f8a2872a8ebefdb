package main

import (
	"context"
	"fmt"
	"io"

	whole "paymentsd/internal/benchkit/bed"
)

// bed is what is measured: a whole service with an instant acquirer.
type bed struct {
	options
	*whole.Bed
	serial int
}

func startBed(ctx context.Context, o options, stderr io.Writer) (*bed, error) {
	service, err := whole.Start(ctx, o.latency, stderr)
	if err != nil {
		return nil, err
	}
	// All clients are to be served: how fast is the question, not who gives way.
	if err := service.Serve(ctx, fmt.Sprintf("server: {database_conns: %d}\nshedding: {enabled: false}", o.conns)); err != nil {
		service.Stop()
		return nil, err
	}
	return &bed{options: o, Bed: service}, nil
}

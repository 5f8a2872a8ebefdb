package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"paymentsd/internal/replica"
)

type demoCommand struct {
	Keep bool `help:"Keep the data and print where it is."`
}

// demoTimeMax bounds the whole demo.
const demoTimeMax = 3 * time.Minute

// Run plays the story. Each step states what has to hold, and the first that does not ends it.
func (c *demoCommand) Run(ctx context.Context, p *process) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTimeMax)
	defer cancel()
	dir, err := os.MkdirTemp("", "paymentsd-demo-")
	if err != nil {
		return err
	}
	began := time.Now()
	stage := &stage{out: p.stdout, dir: dir}
	defer func() {
		err = errors.Join(err, stage.close())
		if c.Keep {
			fmt.Fprintf(p.stdout, "The data is in %s: paymentsd dev --dir %s goes on with it.\n", dir, dir)
			return
		}
		err = errors.Join(err, removeData(context.WithoutCancel(ctx), dir), os.RemoveAll(dir))
	}()
	stage.plant, err = startPlant(ctx, plantConfig{dir: dir, log: p.logger(true, slog.LevelError), stdout: p.stdout})
	if err != nil {
		return err
	}
	if stage.replica, err = startReplica(ctx, stage.plant, p.stderr); err != nil {
		return err
	}
	if err := stage.play(ctx); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "\nEvery step held, in %v.\n", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// stage is where the demo plays.
type stage struct {
	plant   *plant
	replica *replica.Replica
	out     io.Writer
	dir     string
	count   int
}

func (s *stage) close() error {
	var err error
	if s.replica != nil {
		err = s.replica.Stop()
	}
	if s.plant != nil {
		err = errors.Join(err, s.plant.stop())
	}
	return err
}

// step is one scene: what it shows, and the proof.
type step struct {
	title string
	play  func(context.Context) (string, error)
}

func (s *stage) play(ctx context.Context) error {
	for _, scene := range s.scenes() {
		s.count++
		fmt.Fprintf(s.out, "\n%2d. %s\n", s.count, scene.title)
		told, err := scene.play(ctx)
		if err != nil {
			return fmt.Errorf("step %d (%s) did not hold: %w", s.count, scene.title, err)
		}
		fmt.Fprintf(s.out, "    %s\n", told)
	}
	return nil
}

// hold is a proof: what is claimed, and what was seen.
func hold(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"paymentsd/reconcile"
)

// The bounds of feeds that come over a network.
const (
	answerTimeMax = 30 * time.Second // until an acquirer begins to answer
	indexBytesMax = 16 << 20
)

// findFeeds turns what --feed names into files, in the order given; a directory's by name, an index's as
// listed. Naming no file at all is an error: a job that silently reconciles nothing is worse than one
// that fails.
func findFeeds(ctx context.Context, stdin io.Reader, names []string) ([]reconcile.Feed, error) {
	var feeds []reconcile.Feed
	for _, name := range names {
		found, err := findFeed(ctx, stdin, name)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, refuse("--feed %s: there is no settlement file there", name)
		}
		feeds = append(feeds, found...)
	}
	return feeds, nil
}

func findFeed(ctx context.Context, stdin io.Reader, name string) ([]reconcile.Feed, error) {
	if name == "-" {
		return []reconcile.Feed{{Name: "standard input", Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(stdin), nil }}}, nil
	}
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return fromAddress(ctx, name)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, refuse("--feed: %w", err)
	}
	if !info.IsDir() {
		return []reconcile.Feed{fromFile(name)}, nil
	}
	entries, err := os.ReadDir(name) // by name
	if err != nil {
		return nil, refuse("--feed: %w", err)
	}
	var feeds []reconcile.Feed
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			feeds = append(feeds, fromFile(filepath.Join(name, e.Name())))
		}
	}
	return feeds, nil
}

func fromFile(name string) reconcile.Feed {
	return reconcile.Feed{Name: filepath.Base(name), Open: func(context.Context) (io.ReadCloser, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, refuse("--feed: %w", err)
		}
		return f, nil
	}}
}

// index is a list of files, as the simulated acquirer's GET /settlement gives it.
type index struct {
	Files []struct {
		Sequence int    `json:"sequence"`
		Address  string `json:"address"`
	} `json:"files"`
}

// fromAddress is one file, or, if the answer is JSON, an index of files.
func fromAddress(ctx context.Context, address string) ([]reconcile.Feed, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, refuse("--feed: %w", err)
	}
	response, err := get(ctx, address)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "application/json" {
		return []reconcile.Feed{fromURL(path.Base(base.Path), address)}, nil
	}
	var list index
	if err := json.NewDecoder(io.LimitReader(response.Body, indexBytesMax)).Decode(&list); err != nil {
		return nil, refuse("--feed %s: the index cannot be read: %w", address, err)
	}
	feeds := make([]reconcile.Feed, 0, len(list.Files))
	for _, f := range list.Files {
		at, err := base.Parse(f.Address)
		if err != nil || f.Address == "" || at.Host != base.Host || at.Scheme != base.Scheme {
			return nil, refuse("--feed %s: the index names %q, which is not an address at %s", address, f.Address, base.Host)
		}
		feeds = append(feeds, fromURL(fmt.Sprintf("%s#%d", path.Base(base.Path), f.Sequence), at.String()))
	}
	return slices.Clip(feeds), nil
}

func fromURL(name, address string) reconcile.Feed {
	return reconcile.Feed{Name: name, Open: func(ctx context.Context) (io.ReadCloser, error) {
		response, err := get(ctx, address)
		if err != nil {
			return nil, err
		}
		return response.Body, nil
	}}
}

func get(ctx context.Context, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, refuse("--feed: %w", err)
	}
	request.Header.Set("Accept", "text/csv, application/json")
	client := &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: answerTimeMax, Proxy: http.ProxyFromEnvironment}}
	response, err := client.Do(request)
	if err != nil {
		// The address may carry a password, and so may the error: neither is repeated.
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return nil, refuse("--feed %s: %w", request.URL.Redacted(), err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, refuse("--feed %s: the answer is %s", request.URL.Redacted(), response.Status)
	}
	return response, nil
}

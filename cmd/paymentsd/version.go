package main

import (
	"cmp"
	"runtime/debug"
)

// version is what this program was built from: a version where it was built as a module at one, else the
// commit, and whether there were changes on top of it.
func version(read func() (*debug.BuildInfo, bool)) string {
	info, ok := read()
	if !ok {
		return "unknown"
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	commit := cmp.Or(set["vcs.revision"], "devel")
	if set["vcs.modified"] == "true" {
		return commit[:min(len(commit), 12)] + "+changes"
	}
	return commit[:min(len(commit), 12)]
}

package main

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// checkDurations reports every duration in a YAML document that cannot be read, with its field and line. The
// decoder would name Go's types instead, and only the first. What is no YAML is for the decoder to say.
func checkDurations(text []byte) error {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil //nolint:nilerr // the decoder reads it again, and says where it is wrong
	}
	var problems []error
	for _, document := range file.Docs {
		problems = append(problems, durationsIn(document.Body, reflect.TypeFor[config](), "")...)
	}
	return errors.Join(problems...)
}

func durationsIn(node ast.Node, t reflect.Type, path string) (problems []error) {
	if t.Kind() == reflect.Pointer { // left out or set
		t = t.Elem()
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		for _, value := range n.Values {
			problems = append(problems, durationsIn(value, t, path)...)
		}
	case *ast.MappingValueNode:
		name := n.Key.GetToken().Value
		if field, ok := fieldNamed(t, name); ok {
			if path != "" {
				name = path + "." + name
			}
			return durationsIn(n.Value, field.Type, name)
		}
	case *ast.SequenceNode:
		if t.Kind() == reflect.Slice {
			for i, value := range n.Values {
				problems = append(problems, durationsIn(value, t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
			}
		}
	case ast.ScalarNode:
		if t == reflect.TypeFor[time.Duration]() && n.Type() != ast.NullType {
			if err := checkDuration(n); err != nil {
				return []error{fmt.Errorf("line %d: %s is %w", n.GetToken().Position.Line, path, err)}
			}
		}
	}
	return problems
}

// fieldNamed is the field of a struct that YAML calls so.
func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	if t.Kind() == reflect.Struct {
		for field := range t.Fields() {
			if field.Tag.Get("yaml") == name {
				return field, true
			}
		}
	}
	return reflect.StructField{}, false
}

func checkDuration(n ast.ScalarNode) error {
	text := n.GetToken().Value
	_, notDuration := time.ParseDuration(text)
	_, notNumber := strconv.Atoi(text)
	switch {
	case notDuration == nil && n.Type() == ast.StringType:
		return nil
	case notNumber == nil:
		return fmt.Errorf("%s: write it with a unit, as %sh or %ss", text, text, text)
	}
	return fmt.Errorf("%q: write a duration, as 250ms, 30s or 720h", text)
}

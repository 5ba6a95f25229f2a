// Renders templates with Go's own template package and the few functions of Helm that the chart uses.
// Standard input: {"files": {name: text}, "dot": {...}}. Standard output: {name: text}.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/template"
)

// files stands for Helm's .Files: the one file of the chart that a template reads.
type files string

func (f files) Get(name string) string { return string(f) }

func main() {
	var asked struct {
		Files     map[string]string
		Dot       map[string]any
		Dashboard string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	all := template.New("chart").Option("missingkey=error")
	asked.Dot["Files"] = files(asked.Dashboard)
	all.Funcs(template.FuncMap{
		"contains":   func(part, text string) bool { return strings.Contains(text, part) },
		"trunc":      func(most int, text string) string { return text[:min(most, len(text))] },
		"trimSuffix": func(end, text string) string { return strings.TrimSuffix(text, end) },
		"add": func(numbers ...any) int {
			sum := 0
			for _, number := range numbers {
				switch n := number.(type) {
				case int:
					sum += n
				case float64:
					sum += int(n)
				}
			}
			return sum
		},
		"default": func(other, value any) any {
			if ok, _ := template.IsTrue(value); ok {
				return value
			}
			return other
		},
		"include": func(name string, dot any) (string, error) {
			var out strings.Builder
			err := all.ExecuteTemplate(&out, name, dot)
			return out.String(), err
		},
		"nindent": func(width int, text string) string {
			pad := "\n" + strings.Repeat(" ", width)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"quote": func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"required": func(why string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, fmt.Errorf("%s", why)
			}
			return value, nil
		},
		"sha256sum": func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
		"toYaml": func(value any) string { return strings.TrimRight(block(value, ""), "\n") },
	})
	for name, text := range asked.Files {
		template.Must(all.New(name).Parse(text))
	}
	rendered := map[string]string{}
	for name := range asked.Files {
		var out strings.Builder
		if err := all.ExecuteTemplate(&out, name, asked.Dot); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		rendered[name] = out.String()
	}
	json.NewEncoder(os.Stdout).Encode(rendered)
}

// block writes a value as YAML in block style: mappings and lists may be added to by what stands after them.
func block(value any, indent string) string {
	var out strings.Builder
	switch v := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		for _, key := range keys {
			fmt.Fprintf(&out, "%s%q:%s", indent, key, inner(v[key], indent))
		}
	case []any:
		for _, item := range v {
			fmt.Fprintf(&out, "%s-%s", indent, inner(item, indent))
		}
	default:
		text, _ := json.Marshal(v)
		fmt.Fprintf(&out, "%s\n", text)
	}
	return out.String()
}

func inner(value any, indent string) string {
	switch v := value.(type) {
	case map[string]any:
		if len(v) > 0 {
			return "\n" + block(v, indent+"  ")
		}
		return " {}\n"
	case []any:
		if len(v) > 0 {
			return "\n" + block(v, indent+"  ")
		}
		return " []\n"
	}
	return " " + block(value, "")
}

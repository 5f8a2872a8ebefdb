// Package deploy_test holds the compose file and the Dockerfile against the commands that they run:
// no container engine is needed.
package deploy_test

import (
	"bufio"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
)

const root = ".."

// load reads the compose file as docker compose does, all profiles on, in an empty environment.
func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithProfiles([]string{"*"}), cli.WithName("paymentsd"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// replicas are the services that run the gateway.
func replicas(p *types.Project) (out []types.ServiceConfig) {
	for _, s := range p.Services {
		if slices.Equal(s.Command, []string{"serve"}) {
			out = append(out, s)
		}
	}
	return out
}

func TestComposeServices(t *testing.T) {
	t.Parallel()
	p := load(t)
	if n := len(replicas(p)); n != 2 {
		t.Errorf("%d replicas of the gateway, want 2", n)
	}
	for _, name := range []string{"postgres", "migrate", "north", "south", "prometheus"} {
		if s, ok := p.Services[name]; !ok || len(s.Profiles) != 0 {
			t.Errorf("a plain `up` does not start %s", name)
		}
	}
	for name, s := range p.Services {
		job := s.Restart == types.RestartPolicyNo
		if !job && (s.HealthCheck == nil || len(s.HealthCheck.Test) == 0 || s.HealthCheck.Disable) {
			t.Errorf("%s keeps running and has no health check", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q: only loopback", name, port.Published, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if info, err := os.Stat(v.Source); err != nil || info.IsDir() {
				t.Errorf("%s mounts %s, which is no file of this project", name, v.Source)
			}
		}
	}
}

func TestComposePublishesEachPortOnce(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	for name, s := range load(t).Services {
		for _, port := range s.Ports {
			if other, ok := taken[port.Published]; ok {
				t.Errorf("%s and %s both publish %s", name, other, port.Published)
			}
			taken[port.Published] = name
		}
	}
}

func TestComposeStartsInOrder(t *testing.T) {
	t.Parallel()
	p := load(t)
	for _, s := range replicas(p) {
		for on, condition := range map[string]string{
			"postgres": types.ServiceConditionHealthy, "migrate": types.ServiceConditionCompletedSuccessfully,
			"north": types.ServiceConditionHealthy, "south": types.ServiceConditionHealthy,
		} {
			if got := s.DependsOn[on].Condition; got != condition {
				t.Errorf("%s waits for %s to be %q, want %q", s.Name, on, got, condition)
			}
		}
	}
	migrate := p.Services["migrate"]
	if migrate.DependsOn["postgres"].Condition != types.ServiceConditionHealthy || migrate.Restart != types.RestartPolicyNo {
		t.Errorf("migrate is no job that waits for Postgres: %v, restart %q", migrate.DependsOn, migrate.Restart)
	}
}

func TestComposeEnvironmentIsWhatTheCommandsRead(t *testing.T) {
	t.Parallel()
	reads := map[string][]string{"paymentsd": environmentOf(t, "paymentsd"), "reconcile": environmentOf(t, "reconcile"), "acquirersim": nil}
	if len(reads["paymentsd"]) < 4 || len(reads["reconcile"]) < 1 {
		t.Fatalf("only %v found in the commands", reads)
	}
	p := load(t)
	for name, s := range p.Services {
		if s.Image != "paymentsd" {
			continue
		}
		for variable := range s.Environment {
			if known := reads[program(s)]; !slices.Contains(known, variable) {
				t.Errorf("%s sets %s, which %s does not read (it reads %v)", name, variable, program(s), known)
			}
		}
	}
	rs := replicas(p)
	for _, s := range rs {
		for _, variable := range []string{"DATABASE_URL", "PAYMENTSD_CONFIG", "PAYMENTSD_FINGERPRINT_KEY", "PAYMENTSD_ADDR"} {
			if v := s.Environment[variable]; v == nil || *v == "" {
				t.Errorf("%s does not set %s", s.Name, variable)
			}
		}
		if !reflect.DeepEqual(s.Environment, rs[0].Environment) {
			t.Errorf("%s and %s are configured differently", s.Name, rs[0].Name)
		}
	}
}

// program is the command of ours that a service runs.
func program(s types.ServiceConfig) string {
	if len(s.Entrypoint) > 0 {
		return s.Entrypoint[0]
	}
	return "paymentsd" // the image's own
}

// environmentOf finds the names in the env tags of a command's flags.
func environmentOf(t *testing.T, command string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "cmd", command, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && field.Tag != nil {
				if name := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("env"); name != "" {
					names = append(names, name)
				}
			}
			return true
		})
	}
	return names
}

// hostFile is the file of this project that a service sees at target.
func hostFile(t *testing.T, s types.ServiceConfig, target string) string {
	t.Helper()
	for _, v := range s.Volumes {
		if v.Target == target {
			return v.Source
		}
	}
	t.Fatalf("%s mounts nothing at %s", s.Name, target)
	return ""
}

// build builds a command of this project.
func build(t *testing.T, command string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), command)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "paymentsd/cmd/"+command).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return path
}

func TestGatewayAcceptsTheComposeConfiguration(t *testing.T) {
	t.Parallel()
	s := replicas(load(t))[0]
	cmd := exec.CommandContext(t.Context(), build(t, "paymentsd"), "check-config", "--offline")
	for name, value := range s.Environment {
		if name == "PAYMENTSD_CONFIG" {
			*value = hostFile(t, s, *value)
		}
		cmd.Env = append(cmd.Env, name+"="+*value)
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "north south") {
		t.Errorf("check-config: %v\n%s", err, out)
	}
}

func TestSimulatorsRunAsTheComposeFileSays(t *testing.T) {
	t.Parallel()
	p, simulator := load(t), build(t, "acquirersim")
	for _, name := range []string{"north", "south"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := p.Services[name]
			args := slices.Clone(s.Command)
			at := slices.Index(args, "--addr") + 1
			if program(s) != "acquirersim" || at == 0 || args[at] != "0.0.0.0:9090" {
				t.Fatalf("%s runs %v %v", name, s.Entrypoint, args)
			}
			args[at] = "127.0.0.1:0"
			cmd := exec.CommandContext(t.Context(), simulator, args...)
			stdout, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "acquirer "+name+" at http://127.0.0.1:") {
				t.Errorf("it says %q, %v", line, err)
			}
			if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
				t.Errorf("it does not stop in order: %v", err)
			}
		})
	}
}

func TestAddressesNameServices(t *testing.T) {
	t.Parallel()
	p := load(t)
	config, err := os.ReadFile("paymentsd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	prometheus, err := os.ReadFile("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	grafana, err := os.ReadFile("grafana-datasource.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(config) + string(prometheus) + string(grafana) + *replicas(p)[0].Environment["DATABASE_URL"]
	found := regexp.MustCompile(`([a-z][a-z-]+):(\d{4})\b`).FindAllStringSubmatch(text, -1)
	if len(found) < 6 {
		t.Fatalf("found only %v", found)
	}
	listens := map[string]string{"postgres": "5432", "prometheus": "9090", "north": "9090", "south": "9090", "paymentsd-a": "8080", "paymentsd-b": "8080"}
	for _, f := range found {
		if _, ok := p.Services[f[1]]; !ok || listens[f[1]] != f[2] {
			t.Errorf("%s names no service and port of the compose file", f[0])
		}
	}
}

func TestReplicaIsGivenTimeToStop(t *testing.T) {
	t.Parallel()
	const requestTimeMax = 25 * time.Second // the default of server.request_time_max
	var config struct {
		Server struct {
			RequestTimeMax time.Duration `yaml:"request_time_max"`
		} `yaml:"server"`
	}
	b, err := os.ReadFile("paymentsd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	longest := max(config.Server.RequestTimeMax, requestTimeMax)
	for _, s := range replicas(load(t)) {
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= longest {
			t.Errorf("%s is killed after %v, and a request may take %v", s.Name, s.StopGracePeriod, longest)
		}
	}
}

func TestDockerfileHoldsEveryCommandThatIsRun(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	dockerfile := string(b)
	commands := map[string]bool{}
	for _, s := range load(t).Services {
		if s.Image == "paymentsd" {
			commands[program(s)] = true
		}
	}
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		if !strings.Contains(dockerfile, "./cmd/"+command) {
			t.Errorf("the image lacks %s", command)
		}
	}
	for _, path := range regexp.MustCompile(`\./cmd/\w+`).FindAllString(dockerfile, -1) {
		if _, err := os.Stat(filepath.Join(root, path, "main.go")); err != nil {
			t.Errorf("the Dockerfile builds %s: %v", path, err)
		}
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(gomod)
	if version == nil || !strings.Contains(dockerfile, "golang:"+string(version[1])+"-") {
		t.Errorf("go.mod wants Go %s, the Dockerfile builds with another", version)
	}
	if !regexp.MustCompile(`(?m)^USER [1-9]`).MatchString(dockerfile) {
		t.Error("the image runs as root")
	}
}

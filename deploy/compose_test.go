package deploy_test

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

// compose is the file as Docker Compose reads it, with the services of all profiles.
func compose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithProfiles([]string{"*"}), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// isPinworker reports whether a service is the worker's program.
func isPinworker(s types.ServiceConfig) bool { return s.Image == "pinworker" }

func TestCompose_WhatIsMountedIsThere(t *testing.T) {
	for name, service := range compose(t).Services {
		for _, v := range service.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s at %s, read-only %v: %v", name, v.Source, v.Target, v.ReadOnly, err)
			}
		}
		if service.Build != nil {
			if _, err := os.Stat(filepath.Join(service.Build.Context, service.Build.Dockerfile)); err != nil {
				t.Errorf("%s is built from a file that is not there: %v", name, err)
			}
		}
	}
}

func TestCompose_TheWorkerKnowsItsCommandsAndSettings(t *testing.T) {
	project := compose(t)
	for name, service := range project.Services {
		if !isPinworker(service) {
			continue
		}
		environment := make(map[string]string)
		for key, value := range service.Environment {
			environment[key] = *value
		}
		command := service.Command
		if command == nil {
			command = []string{"serve"} // the image's own
		}
		wantCommand(t, command)
		values := settings(t, environment)
		database, err := url.Parse(values["database.url"])
		if err != nil {
			t.Fatal(err)
		}
		hosts := []string{database.Hostname()}
		if command[0] != "migrate" {
			broker, _, err := net.SplitHostPort(values["kafka.brokers"])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			hosts = append(hosts, broker)
		}
		for _, host := range hosts {
			if _, ok := project.Services[host]; !ok {
				t.Errorf("%s talks to %s, which there is not", name, host)
			}
		}
		if command[0] == "serve" {
			wantGrace(t, values, time.Duration(*service.StopGracePeriod))
			wantCommand(t, service.HealthCheck.Test[2:])
		}
		if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) || !slices.Contains(service.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may do more than it needs", name)
		}
	}
}

// Who waits for another's health needs it to have one; what runs to its end is waited for to its end.
func TestCompose_EachWaitsForWhatItNeeds(t *testing.T) {
	once := []string{"migrate", "topics", "traffic"}
	project := compose(t)
	for name, service := range project.Services {
		if has := service.HealthCheck != nil; has == slices.Contains(once, name) {
			t.Errorf("%s has a health check: %v", name, has)
		}
		for on, depends := range service.DependsOn {
			want := types.ServiceConditionHealthy
			if slices.Contains(once, on) {
				want = types.ServiceConditionCompletedSuccessfully
			}
			if on == "worker" { // Prometheus shows it while it is unhealthy, too
				want = types.ServiceConditionStarted
			}
			if depends.Condition != want {
				t.Errorf("%s waits for %s: %s; want %s", name, on, depends.Condition, want)
			}
		}
	}
	for _, wanted := range [][2]string{
		{"migrate", "postgres"}, {"topics", "kafka"}, {"worker", "migrate"}, {"worker", "topics"}, {"traffic", "migrate"}, {"traffic", "topics"}, {"grafana", "prometheus"},
	} {
		if _, ok := project.Services[wanted[0]].DependsOn[wanted[1]]; !ok {
			t.Errorf("%s does not wait for %s", wanted[0], wanted[1])
		}
	}
}

// Apache Kafka is the one that the worker is tested against.
func TestCompose_KafkaIsOfTheVersionThatCITests(t *testing.T) {
	pom, err := os.ReadFile("../.ci/kafka/pom.xml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kafka", "topics"} {
		_, version, _ := strings.Cut(compose(t).Services[name].Image, ":")
		if !strings.Contains(string(pom), "<version>"+version+"</version>") {
			t.Errorf("%s is of version %s, which .ci/kafka/pom.xml does not name", name, version)
		}
	}
}

func TestGrafana_IsProvisionedWithTheDashboardsAndTheirDataSource(t *testing.T) {
	var sources struct {
		APIVersion  int `json:"apiVersion"`
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool `json:"isDefault"`
		} `json:"datasources"`
	}
	var dashboards struct {
		APIVersion int `json:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	decode(t, "grafana/provisioning/datasources/prometheus.yaml", &sources)
	decode(t, "grafana/provisioning/dashboards/pinworker.yaml", &dashboards)
	project := compose(t)
	u, err := url.Parse(sources.Datasources[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := project.Services[u.Hostname()]; !ok {
		t.Errorf("the data source is %s, which there is not", u)
	}
	mounted := slices.IndexFunc(project.Services["grafana"].Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == dashboards.Providers[0].Options.Path })
	if mounted < 0 {
		t.Fatalf("nothing is mounted at %s", dashboards.Providers[0].Options.Path)
	}
	files, err := filepath.Glob(filepath.Join(project.Services["grafana"].Volumes[mounted].Source, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dashboard any
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, uid := range sourcesOf(dashboard) {
			if uid != sources.Datasources[0].UID && !strings.HasPrefix(uid, "$") && uid != "-- Grafana --" {
				t.Errorf("%s asks the data source %q; there is %q", file, uid, sources.Datasources[0].UID)
			}
		}
	}
}

// sourcesOf are the uids of the data sources that a dashboard's parts name.
func sourcesOf(part any) (uids []string) {
	switch part := part.(type) {
	case []any:
		for _, each := range part {
			uids = append(uids, sourcesOf(each)...)
		}
	case map[string]any:
		if source, ok := part["datasource"].(map[string]any); ok {
			if uid, ok := source["uid"].(string); ok {
				uids = append(uids, uid)
			}
		}
		for _, each := range part {
			uids = append(uids, sourcesOf(each)...)
		}
	}
	return uids
}

func decode(t *testing.T, file string, to any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

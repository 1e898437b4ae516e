package deploy_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// grafana reads a dashboard into Grafana's own types. What these do not know would be lost on the way.
func grafana(t *testing.T, file string) (d dashboard.Dashboard) { //nolint:staticcheck // its successor is not what Grafana 12 reads from files
	t.Helper()
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	known, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(d.Validate(), json.Unmarshal(text, &want), json.Unmarshal(known, &got)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Grafana takes it for\n%s", known)
	}
	return d
}

func TestGrafana_EachPanelSaysWhatItShowsInWhichUnitAndAsksTheChosenPrometheus(t *testing.T) {
	files, err := filepath.Glob("grafana/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("dashboards %q, %v; want four", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			d := grafana(t, file)
			if d.Uid == nil || *d.Uid+".json" != filepath.Base(file) {
				t.Error("its uid is not its file's name")
			}
			if v := d.Templating.List; len(v) != 1 || v[0].Name != "datasource" || v[0].Type != dashboard.VariableTypeDatasource {
				t.Errorf("variables %v; want the data source", v)
			}
			if len(d.Panels) == 0 || d.Panels[0].RowPanel == nil || *d.Uid != "pinworker-outbox" && *d.Panels[0].RowPanel.Title != "Background jobs" {
				t.Fatal("it does not begin with its row")
			}
			ids := make(map[uint32]bool)
			for _, panel := range d.Panels[1:] {
				p := panel.Panel
				if p.Description == nil || p.FieldConfig == nil || p.FieldConfig.Defaults.Unit == nil || p.Datasource == nil || *p.Datasource.Uid != "${datasource}" {
					t.Errorf("%s: no description, unit or data source", *p.Title)
				}
				if ids[*p.Id] {
					t.Errorf("%s: its id %d is another's", *p.Title, *p.Id)
				}
				ids[*p.Id] = true
				for _, target := range p.Targets {
					if query, is := target.(*prometheus.Dataquery); !is || strings.TrimSpace(query.Expr) == "" {
						t.Errorf("%s: %T is no query of Prometheus", *p.Title, target)
					}
				}
			}
		})
	}
}

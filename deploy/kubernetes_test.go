package deploy_test

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// manifests are what kustomize builds of a folder, by its kind. A field that its kind does not have
// fails the test, and so does one that is said twice.
type manifests map[string]runtime.Object

func build(t *testing.T, folder string) manifests {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	m := make(manifests)
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, kind, err := decoder.Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", resource.CurId(), err)
		}
		if m[kind.Kind] != nil {
			t.Fatalf("%s: there is another %s", resource.CurId(), kind.Kind)
		}
		m[kind.Kind] = object
	}
	return m
}

// of returns the one manifest of a type.
func of[T runtime.Object](t *testing.T, m manifests) (object T) {
	t.Helper()
	kind := reflect.TypeOf(object).Elem().Name()
	object, ok := m[kind].(T)
	if !ok {
		t.Fatalf("there is no %s among %s", kind, sorted(m))
	}
	return object
}

func selects(t *testing.T, selector *metav1.LabelSelector, these map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return !s.Empty() && s.Matches(labels.Set(these))
}

func TestKubernetes_TwoWorkersAreServedProbedAndScraped(t *testing.T) {
	m := build(t, "kubernetes/worker")
	deployment, service, monitor := of[*appsv1.Deployment](t, m), of[*corev1.Service](t, m), of[*monitoringv1.ServiceMonitor](t, m)
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]
	if n := *deployment.Spec.Replicas; n != 2 {
		t.Errorf("%d replicas; want 2", n)
	}
	if !selects(t, deployment.Spec.Selector, pod.Labels) || !selects(t, &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, pod.Labels) ||
		!selects(t, &monitor.Spec.Selector, service.Labels) {
		t.Error("a selector passes its pods by")
	}
	values := settings(t, nil)
	port := container.Ports[0]
	if listen := values["http.listen"]; listen != ":8080" || port.ContainerPort != 8080 {
		t.Errorf("port %d; the worker listens on %s", port.ContainerPort, listen)
	}
	for path, probe := range map[string]*corev1.Probe{"/livez": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != port.Name {
			t.Errorf("probe %+v; want %s on %s", probe.HTTPGet, path, port.Name)
		}
	}
	scraped := monitor.Spec.Endpoints[0]
	if scraped.Port != service.Spec.Ports[0].Name || service.Spec.Ports[0].TargetPort.String() != port.Name || scraped.Path != "/metrics" || !scraped.HonorLabels {
		t.Errorf("scraped: %+v, by way of %+v", scraped, service.Spec.Ports)
	}
	wantGrace(t, values, time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second)
}

func TestKubernetes_OneWorkerIsLeftWhileNodesAreDrained(t *testing.T) {
	m := build(t, "kubernetes/worker")
	deployment, budget := of[*appsv1.Deployment](t, m), of[*policyv1.PodDisruptionBudget](t, m)
	if !selects(t, budget.Spec.Selector, deployment.Spec.Template.Labels) || int32(budget.Spec.MaxUnavailable.IntValue()) >= *deployment.Spec.Replicas {
		t.Errorf("budget %+v", budget.Spec)
	}
	if surge := deployment.Spec.Strategy.RollingUpdate; surge.MaxUnavailable.IntValue() != 0 || surge.MaxSurge.IntValue() < 1 {
		t.Errorf("a new version takes the place of one that still works: %+v", surge)
	}
}

// pods are the templates of all that runs, with the manifests that each is among.
func pods(t *testing.T, folder string) map[string]struct {
	manifests
	corev1.PodTemplateSpec
} {
	t.Helper()
	worker, migrate := build(t, folder+"/worker"), build(t, folder+"/migrate")
	return map[string]struct {
		manifests
		corev1.PodTemplateSpec
	}{
		"worker":  {worker, of[*appsv1.Deployment](t, worker).Spec.Template},
		"migrate": {migrate, of[*batchv1.Job](t, migrate).Spec.Template},
	}
}

func TestKubernetes_TheWorkerAndItsMigrationsAreOfTheOneImageThatIsSet(t *testing.T) {
	const mine = "registry.example/pinworker:1.2.3"
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("kubernetes")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "image", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(text)+"    newName: registry.example/pinworker\n    newTag: 1.2.3\n")
	for name, pod := range pods(t, folder) {
		if image := pod.Spec.Containers[0].Image; image != mine {
			t.Errorf("%s runs %s; want %s", name, image, mine)
		}
	}
}

func TestKubernetes_PodsMayDoNoMoreThanTheyNeed(t *testing.T) {
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range pods(t, "kubernetes") {
		spec, container := pod.Spec, pod.Spec.Containers[0]
		policy := of[*networkingv1.NetworkPolicy](t, pod.manifests)
		if !selects(t, &policy.Spec.PodSelector, pod.Labels) || len(policy.Spec.PolicyTypes) != 2 {
			t.Errorf("%s may be talked to by all, or talk to all", name)
		}
		if *spec.AutomountServiceAccountToken || spec.ServiceAccountName != of[*corev1.ServiceAccount](t, pod.manifests).Name {
			t.Errorf("%s has a token, or another's account", name)
		}
		if s := spec.SecurityContext; !*s.RunAsNonRoot || !strings.Contains(string(dockerfile), "USER 65532:65532") || *s.RunAsUser != 65532 || s.SeccompProfile == nil {
			t.Errorf("%s: %+v", name, s)
		}
		if s := container.SecurityContext; !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: %+v", name, s)
		}
		if r := container.Resources; r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().Cmp(*r.Requests.Memory()) < 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Each secret is a file: the settings name those that are mounted, and no others.
func TestKubernetes_TheWorkerKnowsItsCommandsSettingsAndSecrets(t *testing.T) {
	for name, pod := range pods(t, "kubernetes") {
		container := pod.Spec.Containers[0]
		wantCommand(t, container.Args)
		folder := t.TempDir()
		var mounts []string // of a container's path, and where it is here
		var secrets []string
		for _, mount := range container.VolumeMounts {
			at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			here, files := filepath.Join(folder, mount.Name), map[string]string{}
			if volume := pod.Spec.Volumes[at]; volume.ConfigMap != nil {
				settings := of[*corev1.ConfigMap](t, pod.manifests)
				if volume.ConfigMap.Name != settings.Name {
					t.Errorf("%s mounts the settings %s; there are %s", name, volume.ConfigMap.Name, settings.Name)
				}
				files = settings.Data
			} else {
				for _, item := range volume.Secret.Items {
					files[item.Path] = certificate(t) // as good as a password
					secrets = append(secrets, mount.MountPath+"/"+item.Path)
				}
			}
			mounts = append(mounts, mount.MountPath, here)
			for file, text := range files {
				write(t, filepath.Join(here, file), text)
			}
		}
		toHere := strings.NewReplacer(mounts...)
		environment, said := make(map[string]string), ""
		for _, variable := range container.Env {
			environment[variable.Name] = toHere.Replace(variable.Value)
			said += variable.Value + "\n"
		}
		file := environment["PINWORKER_CONFIG"]
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, toHere.Replace(string(text)))
		if values := settings(t, environment); !strings.Contains(values["database.url"], "sslmode=verify-full") {
			t.Errorf("%s: database.url %s", name, values["database.url"])
		}
		if name == "worker" { // migrations need no Kafka
			said += string(text)
		}
		named := regexp.MustCompile(`/run/secrets/pinworker/[\w.-]+`).FindAllString(said, -1)
		slices.Sort(named)
		slices.Sort(secrets)
		if named = slices.Compact(named); !slices.Equal(named, secrets) {
			t.Errorf("%s names the secrets %s; mounted are %s", name, named, secrets)
		}
	}
}

// certificate is one that can be read, whoever it is of.
func certificate(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

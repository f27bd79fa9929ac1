"""What the charts render, held against the CRDs' schemas and our own parser."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from logfleet.resources.cluster import parse_cluster
from logfleet.resources.topic import parse_topic
from logfleet_operator.names import BROKER, selector

from e2e.harness.images import ROOT
from e2e.harness.kube.fleet import CHARTS
from e2e.harness.kube.kubernetes import Kubernetes
from e2e.harness.processes import Broker
from e2e.harness.promql import OF_EVERY_TARGET, named
from e2e.lab.tools import KUBE, module_version

KUBE_VERSION = module_version(KUBE.go_mod, "k8s.io/kubernetes").removeprefix("v")


class Helm:
    def __init__(self, program: Path) -> None:
        self._program = program

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @cache  # noqa: B019  # one instance for all tests
    def render(self, chart: str, *settings: str, release: str = "fleet") -> list[dict[str, Any]]:
        flags = [flag for setting in settings for flag in ("--set-json", setting)]
        where = [release, str(CHARTS / chart), "-n", "sys", "--kube-version", KUBE_VERSION]
        done = self.run("template", *where, *flags)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="session")
def helm(kubernetes: Kubernetes) -> Helm:
    return Helm(kubernetes.tools / "helm")


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


def pods(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    specs = [document["spec"] for document in of_kind(documents, "Pod")]
    return specs + [
        document["spec"]["template"]["spec"] for document in of_kind(documents, "Deployment")
    ]


@pytest.mark.parametrize("chart", ["operator", "cluster"])
def test_helm_finds_nothing_to_complain_about(helm: Helm, chart: str) -> None:
    done = helm.run("lint", "--strict", "--kube-version", KUBE_VERSION, str(CHARTS / chart))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "chart, setting, complaint",
    [
        ("operator", "imag={}", "additional properties 'imag' not allowed"),
        ("operator", 'watchNamespaces="a"', "/watchNamespaces"),
        ("operator", 'log.level="loud"', "/log/level"),
        ("cluster", "cluster.pools[0].replicas=0", "/cluster/pools/0"),
        ("cluster", "cluster.zone=[]", "additional properties 'zone' not allowed"),
        ("cluster", "monitoring.alerts.groupLag=0", "/monitoring/alerts/groupLag"),
        ("cluster", 'topics=[{"partitions": 3}]', "missing property 'name'"),
        ("cluster", 'topics=[{"name": "a", "partition": 3}]', "'partition' not allowed"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_installed(
    helm: Helm, chart: str, setting: str, complaint: str
) -> None:
    done = helm.run(
        "template", "x", str(CHARTS / chart), "--kube-version", KUBE_VERSION, "--set-json", setting
    )
    assert done.returncode != 0
    assert complaint in done.stderr


def test_the_operators_chart_brings_the_crds_and_leaves_them_behind(helm: Helm) -> None:
    crds = of_kind(helm.render("operator"), "CustomResourceDefinition")
    for crd in crds:
        source = yaml.safe_load((ROOT / f"crds/{crd['spec']['names']['plural']}.yaml").read_text())
        assert crd["spec"] == source["spec"]
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert len(crds) == len(list((ROOT / "crds").glob("*.yaml")))
    assert of_kind(helm.render("operator", "crds.enabled=false"), "CustomResourceDefinition") == []
    loose = of_kind(helm.render("operator", "crds.keep=false"), "CustomResourceDefinition")
    assert not any(crd["metadata"].get("annotations") for crd in loose)


@pytest.mark.parametrize("chart", ["operator", "cluster"])
def test_every_pod_is_restricted(helm: Helm, chart: str) -> None:
    rendered = pods(helm.render(chart))
    for pod in rendered:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
    assert rendered


@pytest.mark.parametrize("chart", ["operator", "cluster"])
def test_no_command_holds_what_kubernetes_reads_as_an_escape(helm: Helm, chart: str) -> None:
    """`$$` in a command reaches the container as `$`: a shell's own process id cannot be named so."""
    rendered = pods(helm.render(chart))
    words = [
        word
        for pod in rendered
        for container in pod["containers"]
        for word in (*container.get("command", ()), *container.get("args", ()))
    ]
    assert words
    assert not [word for word in words if "$$" in word]


def test_every_pod_runs_where_the_values_say(helm: Helm) -> None:
    where = ('nodeSelector={"zone":"b"}', 'tolerations=[{"operator":"Exists"}]')
    rendered = pods(helm.render("operator", *where))
    assert len(rendered) == 2  # the operator, and what `helm test` starts
    for pod in rendered:
        assert pod["nodeSelector"] == {"zone": "b"}
        assert pod["tolerations"] == [{"operator": "Exists"}]


def test_the_operator_runs_twice_with_probes_on_its_port(helm: Helm) -> None:
    (deployment,) = of_kind(helm.render("operator", "ports.http=9000"), "Deployment")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 9000}]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert environment["LOGFLEET_HTTP_PORT"] == "9000"
    assert environment["LOGFLEET_NAMESPACES"] == ""


def granted(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_with_named_namespaces_rights_end_there(helm: Helm) -> None:
    documents = helm.render("operator", 'watchNamespaces=["a","b"]')
    (role,) = of_kind(documents, "ClusterRole")
    assert {resource for resource, _ in granted(role["rules"])} == {
        "customresourcedefinitions",
        "leases",
        "namespaces",
        "nodes",
        "storageclasses",
    }
    leases = {verb for resource, verb in granted(role["rules"]) if resource == "leases"}
    assert leases == {"get"}, "those of other releases are read"
    places = ["sys", "a", "b"]  # the first for the Lease only
    lease = of_kind(documents, "Role")[0]
    assert granted(lease["rules"]) == {("leases", verb) for verb in ("create", "get", "patch")}
    assert [role["metadata"]["namespace"] for role in of_kind(documents, "Role")] == places
    bindings = of_kind(documents, "RoleBinding")
    assert [binding["metadata"]["namespace"] for binding in bindings] == places
    assert all(binding["subjects"][0]["namespace"] == "sys" for binding in bindings)


FULL = json.dumps(
    yaml.safe_load((ROOT / "crds/examples/cluster.yaml").read_text())["spec"], sort_keys=True
)


@pytest.mark.parametrize(
    "settings",
    [
        (),
        (
            f"cluster={FULL}",
            'topics=[{"name":"flights","partitions":6,"config":{"retention.ms":1}}]',
        ),
    ],
)
def test_the_clusters_chart_renders_what_the_schemas_and_we_accept(
    helm: Helm, settings: tuple[str, ...]
) -> None:
    documents = helm.render("cluster", *settings)
    (cluster,) = of_kind(documents, "Cluster")
    jsonschema.validate(cluster["spec"], crd_schema("clusters"))
    assert parse_cluster(cluster).metadata.name == "fleet"
    topics = of_kind(documents, "Topic")
    for topic in topics:
        jsonschema.validate(topic["spec"], crd_schema("topics"))
        assert parse_topic(topic).spec.cluster_ref.name == "fleet"
    assert len(topics) == (1 if settings else 0)


def test_the_operators_pod_takes_what_a_cluster_wants_of_pods(helm: Helm) -> None:
    volume = {"name": "ca", "configMap": {"name": "roots"}}
    mount = {"name": "ca", "mountPath": "/etc/roots"}
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    documents = helm.render(
        "operator",
        f"extraVolumes={json.dumps([volume])}",
        f"extraVolumeMounts={json.dumps([mount])}",
        f"topologySpreadConstraints={json.dumps([spread])}",
    )
    (pod,) = [document["spec"]["template"]["spec"] for document in of_kind(documents, "Deployment")]
    assert volume in pod["volumes"]
    assert mount in pod["containers"][0]["volumeMounts"]
    assert pod["topologySpreadConstraints"] == [spread]


def test_the_operator_is_scraped_where_that_is_wanted(helm: Helm) -> None:
    wanted = 'serviceMonitor={"enabled":true,"labels":{"release":"prom"}}'
    documents = helm.render("operator", wanted)
    (monitor,) = of_kind(documents, "ServiceMonitor")
    (service,) = of_kind(documents, "Service")
    assert monitor["metadata"]["labels"]["release"] == "prom"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= service["metadata"]["labels"].items()
    assert of_kind(helm.render("operator"), "ServiceMonitor") == []


@pytest.mark.parametrize(
    "written, expected",
    [
        ((), {"managed": {"replicas": 1}}),
        (("cluster.metadata.managed.replicas=3",), {"managed": {"replicas": 3}}),
        (('cluster.metadata.endpoints=["etcd:2379"]',), {"endpoints": ["etcd:2379"]}),
    ],
)
def test_the_store_is_what_is_written_and_nothing_beside_it(
    helm: Helm, written: tuple[str, ...], expected: dict[str, Any]
) -> None:
    (cluster,) = of_kind(helm.render("cluster", *written), "Cluster")
    assert cluster["spec"]["metadata"] == expected


def crd_schema(plural: str) -> dict[str, Any]:
    """The CRD's own schema of `spec`, unknown fields refused."""
    crd = yaml.safe_load((ROOT / f"crds/{plural}.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert isinstance(spec, dict)
    return close(spec)


def close(schema: dict[str, Any]) -> dict[str, Any]:
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: close(field) for name, field in schema["properties"].items()}
        closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = close(schema["items"])
    return closed


def test_the_clusters_test_asks_the_internal_listener(helm: Helm) -> None:
    listeners = 'cluster.listeners=[{"name":"in","port":1111,"type":"internal"}]'
    for settings, port in (((), 9092), ((listeners,), 1111)):
        (pod,) = of_kind(helm.render("cluster", *settings), "Pod")
        (variable,) = pod["spec"]["containers"][0]["env"]
        assert variable == {
            "name": "LOGFLEET_BOOTSTRAP_SERVER",
            "value": f"fleet-bootstrap.sys.svc:{port}",
        }


def test_the_clusters_test_sends_a_record_there_and_back(helm: Helm, tmp_path: Path) -> None:
    (pod,) = of_kind(helm.render("cluster"), "Pod")
    shell, options, script = pod["spec"]["containers"][0]["command"]
    broker = Broker(tmp_path / "broker")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
        "LOGFLEET_BOOTSTRAP_SERVER": broker.bootstrap,
    }

    def run(text: str) -> subprocess.CompletedProcess[str]:
        command = [shell, options, text]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    try:
        broker.start()
        done = run(script)
        assert done.returncode == 0, done.stderr
        assert "helm-test-" in done.stdout
        assert run("logfleet topic list").stdout.count("helm-test-") == 0
        # a broker that gives back something else
        assert run(script.replace('echo "$topic"', "echo else")).returncode != 0
    finally:
        broker.close()


def test_the_console_has_no_rights_and_is_reached_by_a_port_forward_only(helm: Helm) -> None:
    assert of_kind(helm.render("cluster"), "Deployment") == []
    wanted = 'console={"enabled":true,"arguments":["--hide-messages"]}'
    documents = helm.render("cluster", wanted)
    (deployment,) = of_kind(documents, "Deployment")
    (account,) = of_kind(documents, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert not {
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "Service",
        "Ingress",
    } & {document["kind"] for document in documents}
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["command"][-3:] == ["127.0.0.1:8080", "-b", "fleet-bootstrap.sys.svc:9092"]
    assert container["args"] == ["--hide-messages"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    (test,) = of_kind(documents, "Pod")
    assert container["image"] == test["spec"]["containers"][0]["image"]
    refused = helm.run(
        "template",
        "x",
        str(CHARTS / "cluster"),
        "--kube-version",
        KUBE_VERSION,
        "--set-json",
        'console={"enabled":true,"port":1}',
    )
    assert "'port' not allowed" in refused.stderr


MONITORED = (
    'monitoring={"podMonitor":{"enabled":true,"labels":{"release":"prom"}},"alerts":{"enabled":true,'
    '"groupLag":7000000000,"loopLagSeconds":0.25}}'
)


def test_monitoring_names_what_a_broker_exposes(helm: Helm, tmp_path: Path) -> None:
    documents = helm.render("cluster", MONITORED)
    (rules,) = of_kind(documents, "PrometheusRule")
    (dashboard,) = of_kind(documents, "ConfigMap")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    expressions = [rule["expr"] for rule in rules["spec"]["groups"][0]["rules"]]
    assert any("> 7000000000 and" in expression for expression in expressions)
    assert any("> 0.25" in expression for expression in expressions)
    assert all('namespace="sys", logfleet_cluster="fleet"' in each for each in expressions)
    expressions += [
        target["expr"]
        for panel in json.loads(dashboard["data"]["logfleet.json"])["panels"]
        for target in panel.get("targets", ())
    ]
    broker = Broker(tmp_path / "broker")
    try:
        broker.start()
        text = broker.metrics()
    finally:
        broker.close()
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    exposed = {f"{name}_bucket" if kind == "histogram" else name for name, kind in kinds.items()}
    for expression in expressions:
        assert named(expression).series <= exposed | OF_EVERY_TARGET, expression


@pytest.mark.parametrize(
    "chart, setting",
    [
        ("cluster", 'monitoring.dashboard.labels={"grafana_dashboard":null}'),
        ("cluster", "monitoring.dashboard.labels=null"),
        ("cluster", 'monitoring={"podMonitor":{"enabled":true,"labels":null}}'),
        ("cluster", 'monitoring={"alerts":{"enabled":true,"labels":null}}'),
        ("operator", "podLabels=null"),
        ("operator", "podAnnotations=null"),
        ("operator", "serviceAccount.annotations=null"),
        ("operator", 'serviceMonitor={"enabled":true,"labels":null}'),
    ],
)
def test_labels_and_annotations_may_be_taken_away(helm: Helm, chart: str, setting: str) -> None:
    """`null` takes a default of the chart away (Helm's docs, Values Files)."""
    assert helm.render(chart, setting)


def test_alerts_of_two_clusters_are_told_apart(helm: Helm) -> None:
    """Alertmanager knows an alert by its labels, and sums have none of the scrape's."""
    settings = (MONITORED, 'name="other"')
    (rules,) = of_kind(helm.render("cluster", *settings), "PrometheusRule")
    for rule in rules["spec"]["groups"][0]["rules"]:
        of_the_cluster = {"namespace": "sys", "logfleet_cluster": "other"}
        assert rule["labels"] == {**of_the_cluster, "severity": rule["labels"]["severity"]}, rule


def test_brokers_are_scraped_by_the_labels_that_their_pods_have(helm: Helm) -> None:
    (monitor,) = of_kind(helm.render("cluster", MONITORED), "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert monitor["spec"]["selector"]["matchLabels"] == selector("fleet", BROKER)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("admin", "/metrics")


def test_what_needs_prometheus_operator_is_off_unless_wanted(helm: Helm) -> None:
    kinds = [document["kind"] for document in helm.render("cluster")]
    assert kinds.count("ConfigMap") == 1
    assert not {"PodMonitor", "PrometheusRule"} & set(kinds)
    without = helm.render("cluster", "monitoring.dashboard.enabled=false")
    assert of_kind(without, "ConfigMap") == []

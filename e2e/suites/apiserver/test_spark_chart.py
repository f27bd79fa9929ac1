"""What the Spark job's chart renders: with and without the Spark operator, and what the committed manifests are made of."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from logfleet_spark.jobs import dlq_router, table_to_topic, topic_to_table, window_counts
from logfleet_spark.jobs.settings import METRICS_PORT

from charts.spark_applications import CHART, wanted
from e2e.harness.images import ROOT
from e2e.harness.kube.kubernetes import Kubernetes
from e2e.suites.apiserver.test_chart_templates import KUBE_VERSION, Helm, of_kind

SCHEMA = json.loads((ROOT / "e2e/tests/unit/harness/spark_operator.json").read_text())
EXAMPLES = {path.stem: yaml.safe_load(path.read_text()) for path in CHART.glob("examples/*.yaml")}
JOBS: dict[str, Any] = {
    "window_counts": window_counts.parse_settings,
    "dlq_router": dlq_router.parse_settings,
    "topic_to_table": topic_to_table.parse_settings,
    "table_to_topic": table_to_topic.parse_settings,
}
KINDS = {"Deployment": ("spec",), "Job": ("spec",), "CronJob": ("spec", "jobTemplate", "spec")}


@pytest.fixture(scope="session")
def helm(kubernetes: Kubernetes) -> Helm:
    return Helm(kubernetes.tools / "helm")


def render(helm: Helm, example: str, *settings: str) -> list[dict[str, Any]]:
    values = [f"{key}={json.dumps(value)}" for key, value in EXAMPLES[example].items()]
    return helm.render("spark-job", *values, *settings, release=example)


def driver(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The pod's template of the driver."""
    (found,) = [each for each in documents if each["kind"] in KINDS]
    for name in KINDS[found["kind"]]:
        found = found[name]
    template: dict[str, Any] = found["template"]
    return template


def config(documents: list[dict[str, Any]], name: str) -> dict[str, str]:
    (found,) = [d for d in of_kind(documents, "ConfigMap") if d["metadata"]["name"].endswith(name)]
    data: dict[str, str] = found["data"]
    return data


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    done = helm.run("lint", "--strict", "--kube-version", KUBE_VERSION, str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "setting, complaint",
    [
        ('job="count"', "/job"),
        ('file="my job.py"', "/file"),
        ('driver.memory="1 GB"', "/driver/memory"),
        ("executor.instances=0", "/executor/instances"),
        ('claim.accessMode="ReadOnlyMany"', "/claim/accessMode"),
        ('sparkConf={"sql.x": "1"}', "'sql.x' does not match pattern"),
        ('packages=["hadoop-aws"]', "/packages"),
        ("setting={}", "'setting' not allowed"),
    ],
)
def test_a_wrong_value_is_refused(helm: Helm, setting: str, complaint: str) -> None:
    given = ("--kube-version", KUBE_VERSION, "--set-json", setting)
    done = helm.run("template", "x", str(CHART), *given)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_the_committed_applications_are_current(kubernetes: Kubernetes) -> None:
    files = wanted(kubernetes.tools / "helm")
    assert {path: path.read_text() for path in files} == files, "run charts/spark_applications.py"
    (folder,) = {path.parent for path in files}
    assert set(folder.iterdir()) == set(files)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_spark_operator_takes_what_is_rendered(helm: Helm, example: str) -> None:
    documents = render(helm, example, "sparkOperator.enabled=true")
    (found,) = [each for each in documents if each["kind"].endswith("SparkApplication")]
    jsonschema.validate(found, SCHEMA)
    assert not [each for each in documents if each["kind"] in KINDS]


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_job_takes_its_settings_from_the_file_that_is_mounted(
    helm: Helm, example: str, tmp_path: Path
) -> None:
    documents = render(helm, example)
    pod = driver(documents)["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    words = container["args"]
    assert words[:1] == ["client"]
    assert words[2:] == ["--settings", f"{mounts['job']}/settings.yaml"]
    job = Path(words[1]).stem
    path = tmp_path / "settings.yaml"
    path.write_text(config(documents, "-job")["settings.yaml"])
    found = JOBS[job](["--settings", str(path)])
    assert found.bootstrap_servers == "fleet-bootstrap.default:9092"
    of_operator = render(helm, example, "sparkOperator.enabled=true")[-1]["spec"]
    spec = of_operator.get("template", of_operator)
    assert vars(JOBS[job](spec["arguments"])) | {"settings": str(path)} == vars(found)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_pod_is_restricted_and_executors_are_what_the_driver_finds(
    helm: Helm, example: str
) -> None:
    documents = render(helm, example)
    pod = driver(documents)["spec"]
    executor = yaml.safe_load(config(documents, "-job")["executor.yaml"])
    conf = dict(
        line.split(" ", 1)
        for line in config(documents, "-conf")["spark-defaults.conf"].splitlines()
    )
    mounts = {m["mountPath"]: m["name"] for m in pod["containers"][0]["volumeMounts"]}
    template = Path(conf["spark.kubernetes.executor.podTemplateFile"])
    assert (str(template.parent), template.name) == ("/opt/spark/job", "executor.yaml")
    assert mounts["/opt/spark/job"] == "job"
    for spec in (pod, executor["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    shipped = (CHART / "files" / "spark-defaults.conf").read_text().splitlines()
    for line in shipped:
        if line and not line.startswith("#"):
            key, value = line.split(maxsplit=1)
            assert conf[key] == value


def test_streams_are_kept_running_batches_end_and_what_is_scheduled_runs_alone(helm: Helm) -> None:
    (stream,) = of_kind(render(helm, "window-counts"), "Deployment")
    assert (stream["spec"]["replicas"], stream["spec"]["strategy"]) == (1, {"type": "Recreate"})
    selector = stream["spec"]["selector"]["matchLabels"]
    assert selector.items() <= stream["spec"]["template"]["metadata"]["labels"].items()
    (batch,) = of_kind(render(helm, "window-counts", 'mode="batch"'), "Job")
    assert batch["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    (scheduled,) = of_kind(render(helm, "dlq-replay"), "CronJob")
    assert scheduled["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.parametrize(
    "setting",
    [
        'cluster.name="other"',
        "dynamicAllocation.enabled=true",
        "claim.enabled=false",
        'settings.window="2 hours"',
        'sparkConf={"spark.x": "1"}',
        'envFrom=["secret"]',
        'nodeSelector={"zone": "a"}',
    ],
)
def test_a_change_of_what_the_driver_reads_makes_a_new_driver(helm: Helm, setting: str) -> None:
    before, after = render(helm, "window-counts"), render(helm, "window-counts", setting)
    maps = [[config(each, name) for name in ("-conf", "-job")] for each in (before, after)]
    assert maps[0] != maps[1]
    of_pods = [driver(each)["metadata"]["annotations"] for each in (before, after)]
    assert of_pods[0]["checksum/conf"] != of_pods[1]["checksum/conf"]


def test_what_the_driver_does_not_read_leaves_it_running(helm: Helm) -> None:
    quiet = render(helm, "window-counts", "monitoring.dashboard.enabled=false")
    assert driver(quiet) == driver(render(helm, "window-counts"))


def test_a_job_of_ones_own_gets_its_own_words_only(helm: Helm) -> None:
    own = ('script="print(1)\\n"', 'arguments=["a b"]')
    documents = render(helm, "window-counts", *own)
    args = driver(documents)["spec"]["containers"][0]["args"]
    assert args == ["client", "local:///opt/spark/job/job.py", "a b"]
    assert config(documents, "-job")["job.py"] == "print(1)"
    url = render(helm, "window-counts", 'file="s3a://b/job.py"')
    assert driver(url)["spec"]["containers"][0]["args"] == ["client", "s3a://b/job.py"]


def test_monitoring_selects_the_driver_by_its_labels_and_port(helm: Helm) -> None:
    wanted_ = (
        'monitoring={"podMonitor":{"enabled":true},"alerts":{"enabled":true,"lag":7000000000}}'
    )
    documents = render(helm, "window-counts", wanted_)
    (monitor,) = of_kind(documents, "PodMonitor")
    template = driver(documents)
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports[endpoint["port"]] == METRICS_PORT
    assert endpoint.get("path", "/metrics") == "/metrics"
    (rules,) = of_kind(documents, "PrometheusRule")
    found = rules["spec"]["groups"][0]["rules"]
    assert any("> 7000000000" in rule["expr"] for rule in found)
    for rule in found:
        assert 'namespace="sys", spark_job="window-counts"' in rule["expr"]
        assert rule["labels"]["spark_job"] == "window-counts"
    other = driver(render(helm, "window-counts", wanted_, 'settings={"metrics-port": 9999}'))
    assert 9999 in [port["containerPort"] for port in other["spec"]["containers"][0]["ports"]]
    own = render(helm, "window-counts", wanted_, 'script="print(1)"')
    (endpoint,) = of_kind(own, "PodMonitor")[0]["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("spark-ui", "/metrics/prometheus")
    kinds = [document["kind"] for document in render(helm, "window-counts")]
    assert not {"PodMonitor", "PrometheusRule"} & set(kinds)

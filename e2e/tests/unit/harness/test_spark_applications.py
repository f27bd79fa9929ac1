"""The SparkApplications: that the Spark operator would take them, and that what they name is in the image and in submit/."""

import copy
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from logfleet_spark.jobs import dlq_router, table_to_topic, topic_to_table, window_counts

from e2e.harness.images import ROOT, TARGETS
from e2e.harness.kube.spark_image import (
    DOCKERFILE,
    IMAGE,
    POD,
    RBAC,
    SPARK,
    VOLUME_LABEL,
    image_group,
    in_the_image,
    same_node,
)

APPLICATIONS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((SPARK / "submit" / "applications").glob("*.yaml"))
}
JOBS = {
    "window_counts": window_counts.parse_settings,
    "dlq_router": dlq_router.parse_settings,
    "topic_to_table": topic_to_table.parse_settings,
    "table_to_topic": table_to_topic.parse_settings,
}
"""The jobs' own parsers."""
OPERATOR_SCHEMA = json.loads((Path(__file__).parent / "spark_operator.json").read_text())
EXAMPLES = {
    d["kind"]: d
    for path in (ROOT / "crds" / "examples").glob("*.yaml")
    for d in yaml.safe_load_all(path.read_text())
}


def job_of(application):
    return Path(application["mainApplicationFile"]).stem


def template(manifest):
    """The SparkApplication's spec of a manifest, scheduled or not."""
    return manifest["spec"].get("template", manifest["spec"])


def settings_of(application):
    return JOBS[job_of(application)](application.get("arguments"))


def test_there_is_an_application_of_every_job_and_of_each_source():
    specs = [template(manifest) for manifest in APPLICATIONS.values()]
    assert {job_of(spec) for spec in specs} == {path.stem for path in (SPARK / "jobs").glob("*.py")}
    assert {settings_of(spec).source for spec in specs} == {"kafka", "logfleet"}
    assert [m["metadata"]["name"] for m in APPLICATIONS.values()] == list(APPLICATIONS)
    kinds = {manifest["kind"] for manifest in APPLICATIONS.values()}
    assert kinds == {"SparkApplication", "ScheduledSparkApplication"}


@pytest.mark.parametrize("manifest", APPLICATIONS.values(), ids=APPLICATIONS)
def test_an_application_fits_the_schema_of_the_spark_operator(manifest):
    jsonschema.validate(manifest, OPERATOR_SCHEMA)


@pytest.mark.parametrize(
    "where, wrong",
    [
        (("spec", "mainFile"), "local:///x.py"),
        (("spec", "driver", "cores"), "1"),
        (("spec", "executor", "instances"), 0),
        (("spec", "restartPolicy", "type"), "Sometimes"),
        (("spec", "arguments"), [1]),
        (("kind",), "SparkJob"),
    ],
)
def test_the_schema_finds_what_the_spark_operator_would_refuse(where, wrong):
    manifest = copy.deepcopy(APPLICATIONS["window-counts"])
    at = manifest
    for name in where[:-1]:
        at = at[name]
    at[where[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, OPERATOR_SCHEMA)


@pytest.fixture(params=APPLICATIONS)
def application(request):
    return template(APPLICATIONS[request.param])


def on_volumes():
    """Applications whose data are on a claim, not in an object store."""
    specs = {name: template(manifest) for name, manifest in APPLICATIONS.items()}
    return {name: spec for name, spec in specs.items() if "volumes" in spec}


@pytest.fixture(params=on_volumes())
def on_volume(request):
    return on_volumes()[request.param]


def test_an_application_names_an_image_that_is_built_and_a_file_in_it(application):
    assert application["image"] == IMAGE
    assert "spark" in TARGETS
    assert in_the_image(application["mainApplicationFile"].removeprefix("local://"))


def test_an_application_says_the_version_of_spark_that_is_in_the_image(application):
    lock = (SPARK / "requirements.lock").read_text()
    assert re.search(rf"^pyspark=={re.escape(application['sparkVersion'])} ", lock, re.MULTILINE)


FOLDERS = ("output", "checkpoint", "rejected", "input")


def folders(application):
    """(setting, folder) of those that a job's settings name."""
    found = vars(settings_of(application))
    return [(name, found[name]) for name in FOLDERS if found.get(name)]


def test_an_applications_arguments_are_the_jobs_and_name_the_examples(application):
    options = settings_of(application)
    cluster = EXAMPLES["Cluster"]
    (port,) = [each["port"] for each in cluster["spec"]["listeners"] if each["type"] == "internal"]
    assert options.bootstrap_servers == f"{cluster['metadata']['name']}-bootstrap.default:{port}"
    topic = EXAMPLES["Topic"]["metadata"]["name"]
    assert topic in str([getattr(options, "topic", ""), getattr(options, "dlq_topic", "")])


def test_folders_are_on_what_is_mounted(on_volume):
    mounts = [mount["mountPath"] for mount in on_volume["driver"]["volumeMounts"]]
    assert folders(on_volume)
    for _, path in folders(on_volume):
        assert any(Path(path).is_relative_to(mount) for mount in mounts)


def test_applications_write_to_no_folder_of_another():
    taken = [
        path
        for manifest in APPLICATIONS.values()
        for name, path in folders(template(manifest))
        if name != "input"
    ]
    assert len(set(taken)) == len(taken)


def test_an_application_mounts_what_rbac_yaml_makes(on_volume):
    volumes = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in on_volume["volumes"]}
    assert set(volumes.values()) == {RBAC["PersistentVolumeClaim"]["metadata"]["name"]}
    for role in ("driver", "executor"):
        assert {mount["name"] for mount in on_volume[role]["volumeMounts"]} == set(volumes)


def test_an_applications_driver_has_the_account_of_rbac_yaml(application):
    assert application["driver"]["serviceAccount"] == RBAC["ServiceAccount"]["metadata"]["name"]


def test_what_runs_is_the_images_user_without_rights(application):
    ((user, group),) = re.findall(
        r"^USER (\d+):(\d+)$",
        DOCKERFILE.partition("AS spark\n")[2].partition("FROM")[0],
        re.MULTILINE,
    )
    pod = yaml.safe_load(POD.read_text())["spec"]
    submitted = pod["securityContext"] | pod["containers"][0]["securityContext"]
    contexts = [
        application[role]["podSecurityContext"] | application[role]["securityContext"]
        for role in ("driver", "executor")
    ]
    for context in (*contexts, submitted):
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)
        assert context["runAsNonRoot"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_images_user_may_write_to_a_volume_that_belongs_to_root(application):
    """As one with a new file system does. Source: Kubernetes, Configure a Security Context, fsGroup."""
    contexts = [application[role]["podSecurityContext"] for role in ("driver", "executor")]
    for context in (*contexts, yaml.safe_load(POD.read_text())["spec"]["securityContext"]):
        assert context["fsGroup"] == image_group()
        assert context["fsGroupChangePolicy"] == "OnRootMismatch"


def test_what_shares_the_claim_of_an_application_runs_on_one_node(on_volume):
    """ReadWriteOnce is for one node. Source: Kubernetes, Persistent Volumes, Access Modes."""
    claim = RBAC["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    labels = {VOLUME_LABEL: claim["metadata"]["name"]}
    spec = copy.deepcopy(on_volume)
    for role in ("driver", "executor"):
        assert labels.items() <= spec[role]["labels"].items()
        assert spec[role]["affinity"] == on_volume["driver"]["affinity"]
    assert same_node(spec["driver"]) == {"labelSelector": {"matchLabels": labels}}


@pytest.mark.parametrize("manifest", APPLICATIONS.values(), ids=APPLICATIONS)
def test_a_stream_that_ends_is_started_again_and_what_is_scheduled_ends(manifest):
    is_stream = manifest["kind"] == "SparkApplication"
    spec = template(manifest)
    assert spec["restartPolicy"]["type"] == ("Always" if is_stream else "OnFailure")
    trigger = getattr(settings_of(spec), "trigger", "available-now")
    assert (trigger != "available-now") == is_stream
    assert spec["driver"]["terminationGracePeriodSeconds"] == 120

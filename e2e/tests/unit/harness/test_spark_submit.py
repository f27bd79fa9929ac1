"""How a job gets to Kubernetes: the submit script, the SparkApplications, and that what they name is in the image."""

import copy
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from logfleet_spark.jobs import window_counts

from e2e.harness.images import ROOT, TARGETS

SPARK = ROOT / "spark-on-k8s"
SUBMIT = SPARK / "submit" / "submit.sh"
POD = SPARK / "submit" / "pod.yaml"
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
RBAC = {d["kind"]: d for d in yaml.safe_load_all((SPARK / "submit" / "rbac.yaml").read_text())}
APPLICATIONS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((SPARK / "submit").glob("window-counts*.yaml"))
}
IMAGE = f"logfleet/spark:{yaml.safe_load((ROOT / 'charts/operator/Chart.yaml').read_text())['appVersion']}"
EXAMPLES = {
    d["kind"]: d
    for path in (ROOT / "crds" / "examples").glob("*.yaml")
    for d in yaml.safe_load_all(path.read_text())
}
VOLUME_LABEL = "logfleet.dev/volume"
MASTER = {"SPARK_MASTER": "k8s://https://10.0.0.1:6443"}


@pytest.fixture
def submit(tmp_path):
    """Runs the script with a spark-submit that writes down its arguments and what of Python's it was given."""
    recorder = tmp_path / "spark-submit"
    recorder.write_text(
        '#!/bin/sh\nprintf "%s\\n" "python=$PYSPARK_PYTHON$PYSPARK_DRIVER_PYTHON" "$@"\n'
    )
    recorder.chmod(0o755)

    def run(*arguments: str, installed: bool = True, **environment: str):
        path = f"{tmp_path}:/usr/bin:/bin" if installed else "/usr/bin:/bin"
        return subprocess.run(
            [SUBMIT, *arguments],
            env={"PATH": path} | environment,
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )

    return run


def split(said: str) -> tuple[dict[str, str], list[str], list[str]]:
    """(configuration, other options of spark-submit, main file and the job's arguments)."""
    words = said.splitlines()[1:]
    main = next(i for i, word in enumerate(words) if word.startswith("local:"))
    options, conf = words[:main], {}
    while "--conf" in options:
        at = options.index("--conf")
        key, _, value = options[at + 1].partition("=")
        assert key not in conf, key
        conf[key] = value
        del options[at : at + 2]
    return conf, options, words[main:]


def test_a_job_is_submitted_in_cluster_mode_with_its_arguments_as_they_stand(submit):
    given = ["--topic", "a b", "--fields", 'x STRING, "y" INT', ""]
    done = submit("window_counts", "--", *given, **MASTER)
    assert (done.returncode, done.stderr) == (0, "")
    conf, options, rest = split(done.stdout)
    assert options == [
        *("--master", MASTER["SPARK_MASTER"], "--deploy-mode", "cluster", "--name", "window-counts")
    ]
    assert rest == ["local:///opt/logfleet/jobs/window_counts.py", *given]
    volume = "volumes.persistentVolumeClaim.data"
    assert conf == {
        "spark.executor.instances": "2",
        "spark.kubernetes.namespace": "spark",
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
        "spark.sql.session.timeZone": "UTC",
        "spark.kubernetes.driver.podTemplateFile": str(POD),
        "spark.kubernetes.executor.podTemplateFile": str(POD),
        f"spark.kubernetes.driver.{volume}.options.claimName": "spark-data",
        f"spark.kubernetes.driver.{volume}.mount.path": "/data",
        f"spark.kubernetes.executor.{volume}.options.claimName": "spark-data",
        f"spark.kubernetes.executor.{volume}.mount.path": "/data",
        f"spark.kubernetes.driver.label.{VOLUME_LABEL}": "spark-data",
        f"spark.kubernetes.executor.label.{VOLUME_LABEL}": "spark-data",
    }


def test_every_setting_of_the_environment_arrives(submit):
    done = submit(
        "window_counts",
        "--",
        **MASTER,
        NAMESPACE="jobs",
        IMAGE="registry.test/spark:1",
        EXECUTORS="5",
        CLAIM="other",
        ZONE="b",
        APP_NAME="counts",
        SPARK_CONF="spark.driver.memory=768m\n\nspark.extra=a=b c",
    )
    conf, options, _ = split(done.stdout)
    assert options[-1] == "counts"
    claims = {value for key, value in conf.items() if key.endswith(("claimName", VOLUME_LABEL))}
    assert claims == {"other"}
    want = {
        "spark.executor.instances": "5",
        "spark.kubernetes.namespace": "jobs",
        "spark.kubernetes.container.image": "registry.test/spark:1",
        "spark.kubernetes.node.selector.topology.kubernetes.io/zone": "b",
        "spark.driver.memory": "768m",
        "spark.extra": "a=b c",
    }
    assert want.items() <= conf.items()


def test_the_submitters_python_stays_at_home(submit):
    """Spark would copy it into the driver's pod."""
    done = submit("window_counts", "--", **MASTER, PYSPARK_PYTHON="/x", PYSPARK_DRIVER_PYTHON="/y")
    assert done.stdout.splitlines()[0] == "python="


@pytest.mark.parametrize(
    "arguments, environment, said",
    [
        ([], MASTER, "write: submit.sh JOB -- ARGUMENTS (submit.sh --help says more)"),
        (
            ["window_counts", "--topic"],
            MASTER,
            "write: submit.sh JOB -- ARGUMENTS (submit.sh --help says more)",
        ),
        (["windows", "--"], MASTER, "there is no job 'windows'; there is: window_counts"),
        (["window_counts", "--"], {}, "SPARK_MASTER is ''; set it to k8s://URL of the API server"),
        (
            ["window_counts", "--"],
            {"SPARK_MASTER": "https://x"},
            "SPARK_MASTER is 'https://x'; set it to k8s://URL of the API server",
        ),
        (
            ["window_counts", "--"],
            MASTER | {"EXECUTORS": "two"},
            "EXECUTORS is 'two'; write a number from 1",
        ),
        (
            ["window_counts", "--"],
            MASTER | {"SPARK_CONF": "spark.a=b\nspark.c"},
            "SPARK_CONF has the line 'spark.c'; write spark.KEY=VALUE",
        ),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_submitted(submit, arguments, environment, said):
    done = submit(*arguments, **environment)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"submit.sh: {said}\n")


def test_a_machine_without_spark_is_told_what_to_install(submit):
    done = submit("window_counts", "--", installed=False, **MASTER)
    assert done.returncode == 2
    assert done.stderr == (
        "submit.sh: spark-submit is not in PATH; install it with: pip install pyspark\n"
    )


def test_help_names_every_setting_that_the_script_reads(submit):
    done = submit("--help")
    assert (done.returncode, done.stderr) == (0, "")
    read = set(re.findall(r"\$\{([A-Z_]+):-", SUBMIT.read_text()))
    assert read == {
        name for name in read if re.search(rf"^ .*\b{name}\b ", done.stdout, re.MULTILINE)
    }
    assert len(read) == 8


def job_arguments():
    """The job's own parser."""
    return window_counts.settings


def test_the_example_in_the_help_is_taken_by_the_job(submit):
    text = submit("--help").stdout
    words = shlex.split(text.partition("submit.sh window_counts -- ")[2].partition("\n\n")[0])
    words = [word for word in words if word.strip()]  # a backslash before the end of a line
    options = job_arguments()(words)
    assert (options.topic, options.sink, options.output) == ("flights", "parquet", "/data/counts")


def copied(target: str) -> dict[str, str]:
    """Where the tree's files lie in an image: folder or file of the image -> of the tree."""
    text = re.findall(
        rf"^FROM base AS {target}\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL
    )
    found = {}
    for source, place in re.findall(r"^COPY (?!--from)(\S+) (\S+)$", text[0], re.MULTILINE):
        found[place + Path(source).name if place.endswith("/") else place] = source
    return found


def in_the_image(path: str) -> bool:
    return any(
        Path(path).is_relative_to(place)
        and (ROOT / source / Path(path).relative_to(place)).exists()
        for place, source in copied("spark").items()
    )


def test_the_script_and_the_image_agree_on_where_jobs_lie(submit):
    _, _, rest = split(submit("window_counts", "--", **MASTER).stdout)
    assert in_the_image(rest[0].removeprefix("local://"))
    assert not in_the_image("/opt/logfleet/jobs/nothing.py")
    assert in_the_image("/opt/logfleet/entrypoint.sh")


def test_there_is_an_application_for_each_source():
    sources = [job_arguments()(app["spec"]["arguments"]).source for app in APPLICATIONS.values()]
    assert sorted(sources) == ["kafka", "logfleet"]
    names = [app["metadata"]["name"] for app in APPLICATIONS.values()]
    assert names == list(APPLICATIONS)


@pytest.fixture(params=APPLICATIONS)
def application(request):
    spec = APPLICATIONS[request.param]["spec"]
    assert APPLICATIONS[request.param]["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    return spec


def test_an_application_names_an_image_that_is_built_and_a_file_in_it(application):
    assert application["image"] == IMAGE
    assert "spark" in TARGETS
    assert in_the_image(application["mainApplicationFile"].removeprefix("local://"))


def test_an_application_says_the_version_of_spark_that_is_in_the_image(application):
    lock = (SPARK / "requirements.lock").read_text()
    assert re.search(rf"^pyspark=={re.escape(application['sparkVersion'])} ", lock, re.MULTILINE)


def test_an_applications_arguments_are_the_jobs_and_name_the_examples(application):
    options = job_arguments()(application["arguments"])
    cluster = EXAMPLES["Cluster"]
    (port,) = [each["port"] for each in cluster["spec"]["listeners"] if each["type"] == "internal"]
    assert options.bootstrap_servers == f"{cluster['metadata']['name']}-bootstrap.default:{port}"
    assert options.topic == EXAMPLES["Topic"]["metadata"]["name"]
    mounts = [mount["mountPath"] for mount in application["driver"]["volumeMounts"]]
    for path in (options.output, options.checkpoint):
        assert any(Path(path).is_relative_to(mount) for mount in mounts)
    assert options.output != options.checkpoint


def test_applications_share_no_folder():
    taken = [
        path
        for app in APPLICATIONS.values()
        for options in [job_arguments()(app["spec"]["arguments"])]
        for path in (options.output, options.checkpoint)
    ]
    assert len(set(taken)) == len(taken)


def test_an_application_mounts_what_rbac_yaml_makes(application):
    volumes = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in application["volumes"]}
    assert set(volumes.values()) == {RBAC["PersistentVolumeClaim"]["metadata"]["name"]}
    for role in ("driver", "executor"):
        assert {mount["name"] for mount in application[role]["volumeMounts"]} == set(volumes)
    assert application["driver"]["serviceAccount"] == RBAC["ServiceAccount"]["metadata"]["name"]


def test_what_runs_is_the_images_user_without_rights(application):
    ((user, group),) = re.findall(
        r"^USER (\d+):(\d+)$",
        DOCKERFILE.partition("AS spark\n")[2].partition("FROM")[0],
        re.MULTILINE,
    )
    pod = yaml.safe_load(POD.read_text())["spec"]
    submitted = pod["securityContext"] | pod["containers"][0]["securityContext"]
    contexts = [application[role]["securityContext"] for role in ("driver", "executor")]
    for context in (*contexts, submitted):
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)
        assert context["runAsNonRoot"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def image_group():
    """The group of the user that the Spark image runs as."""
    stage = DOCKERFILE.partition("AS spark\n")[2].partition("FROM")[0]
    (group,) = re.findall(r"^USER \d+:(\d+)$", stage, re.MULTILINE)
    return int(group)


def test_the_images_user_may_write_to_a_volume_that_belongs_to_root(application):
    """As one with a new file system does. Source: Kubernetes, Configure a Security Context, fsGroup."""
    contexts = [application[role]["podSecurityContext"] for role in ("driver", "executor")]
    for context in (*contexts, yaml.safe_load(POD.read_text())["spec"]["securityContext"]):
        assert context["fsGroup"] == image_group()
        assert context["fsGroupChangePolicy"] == "OnRootMismatch"


def same_node(pod):
    """What a pod must be beside: the one required term of its affinity."""
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term.pop("topologyKey") == "kubernetes.io/hostname"
    return term


def test_what_shares_the_claim_of_an_application_runs_on_one_node(application):
    """ReadWriteOnce is for one node. Source: Kubernetes, Persistent Volumes, Access Modes."""
    claim = RBAC["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    labels = {VOLUME_LABEL: claim["metadata"]["name"]}
    spec = copy.deepcopy(application)
    for role in ("driver", "executor"):
        assert spec[role]["labels"] == labels
        assert spec[role]["affinity"] == application["driver"]["affinity"]
    assert same_node(spec["driver"]) == {"labelSelector": {"matchLabels": labels}}


def test_what_shares_the_claim_of_a_submitted_job_runs_on_one_node():
    """Spark labels its pods with their role; only those whose label names the same claim count."""
    assert same_node(yaml.safe_load(POD.read_text())["spec"]) == {
        "labelSelector": {"matchExpressions": [{"key": "spark-role", "operator": "Exists"}]},
        "matchLabelKeys": [VOLUME_LABEL],
    }


def test_a_stream_that_ends_is_started_again(application):
    assert application["restartPolicy"]["type"] == "Always"
    assert job_arguments()(application["arguments"]).trigger != "available-now"


def test_the_script_names_the_account_and_the_claim_of_rbac_yaml(submit):
    conf, _, _ = split(submit("window_counts", "--", **MASTER).stdout)
    account = conf["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert account == RBAC["ServiceAccount"]["metadata"]["name"]
    claims = {value for key, value in conf.items() if key.endswith("claimName")}
    assert claims == {RBAC["PersistentVolumeClaim"]["metadata"]["name"]}


def test_a_driver_may_make_what_spark_makes_and_nothing_else():
    """Source: Spark, Running on Kubernetes, RBAC; NetworkPolicies since 4.2 (their creation is part of the driver's start)."""
    rules = RBAC["Role"]["rules"]
    allowed = {(group, kind) for r in rules for group in r["apiGroups"] for kind in r["resources"]}
    core = ("pods", "services", "configmaps", "persistentvolumeclaims")
    assert allowed == {("", kind) for kind in core} | {("networking.k8s.io", "networkpolicies")}
    for rule in rules:
        assert {"create", "get", "list", "watch", "patch", "delete", "deletecollection"} <= set(
            rule["verbs"]
        )
        assert "*" not in rule["verbs"]
    binding = RBAC["RoleBinding"]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": RBAC["Role"]["metadata"]["name"],
    }
    assert [s["name"] for s in binding["subjects"]] == [RBAC["ServiceAccount"]["metadata"]["name"]]

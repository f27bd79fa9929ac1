"""How a job gets to Kubernetes by the submit script, and that what it names is in the image."""

import re
import shlex
import subprocess

import pytest
import yaml
from logfleet_spark.jobs import window_counts

from e2e.harness.images import ROOT
from e2e.harness.kube.spark_image import (
    IMAGE,
    POD,
    RBAC,
    SPARK,
    VOLUME_LABEL,
    in_the_image,
    same_node,
)

SUBMIT = SPARK / "submit" / "submit.sh"
MASTER = {"SPARK_MASTER": "k8s://https://10.0.0.1:6443"}


@pytest.fixture
def submit(tmp_path):
    """Runs the script with a spark-submit that writes down its arguments and what of Python's it was given."""
    recorder = tmp_path / "spark-submit"
    recorder.write_text(
        '#!/bin/sh\nprintf "%s\\n" "python=$PYSPARK_PYTHON$PYSPARK_DRIVER_PYTHON" "$@"\n'
        'cp -r "$SPARK_CONF_DIR" "$KEPT"\n'
        'echo "${SAID:-phase: Succeeded}" >&2\n'
    )
    recorder.chmod(0o755)

    def run(*arguments: str, installed: bool = True, **environment: str):
        path = f"{tmp_path}:/usr/bin:/bin" if installed else "/usr/bin:/bin"
        return subprocess.run(
            [SUBMIT, *arguments],
            env={"PATH": path, "KEPT": str(tmp_path / "conf")} | environment,
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
    assert (done.returncode, done.stderr) == (0, "phase: Succeeded\n")
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
        "spark.kubernetes.executor.disableConfigMap": "false",
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


def test_what_ships_in_conf_goes_along(submit, tmp_path):
    submit("window_counts", "--", **MASTER)
    shipped = {path.name: path.read_text() for path in (SPARK / "conf").iterdir()}
    assert set(shipped) == {"spark-defaults.conf", "log4j2.properties"}
    sent = {path.name: path.read_text() for path in (tmp_path / "conf").iterdir()}
    assert shipped.items() <= sent.items()
    for name, text in shipped.items():
        assert (ROOT / "charts" / "spark-job" / "files" / name).read_text() == text


def test_a_file_of_this_machine_and_its_settings_go_along(submit, tmp_path):
    (tmp_path / "my_job.py").write_text("print(1)\n")
    (tmp_path / "s.yaml").write_text("topic: t\n")
    more = {"SETTINGS": "s.yaml", "PACKAGES": "a:b:1"}
    done = submit("my_job.py", "--", "x y", **more, **MASTER)
    _, options, rest = split(done.stdout)
    assert options[-4:] == ["--name", "my-job", "--packages", "a:b:1"]
    settings = ["--settings", "/opt/spark/conf/job-settings.yaml"]
    assert rest == ["local:///opt/spark/conf/my_job.py", *settings, "x y"]
    assert (tmp_path / "conf" / "my_job.py").read_text() == "print(1)\n"
    assert (tmp_path / "conf" / "job-settings.yaml").read_text() == "topic: t\n"


@pytest.mark.parametrize("url", ["local:///opt/my/job.py", "s3a://bucket/jobs/job.py"])
def test_a_url_is_left_to_the_driver(submit, url):
    words = submit(url, "--", "a", **MASTER).stdout.splitlines()
    assert words[-2:] == [url, "a"]


def test_without_a_claim_nothing_is_mounted(submit):
    conf, _, _ = split(submit("window_counts", "--", CLAIM="none", **MASTER).stdout)
    assert not [key for key in conf if "volume" in key]


@pytest.mark.parametrize(
    "said, code", [("phase: Failed", 1), ("phase: Running", 1), ("phase: Succeeded", 0)]
)
def test_the_script_ends_as_the_driver_did(submit, said, code):
    assert submit("window_counts", "--", SAID=said, **MASTER).returncode == code


def test_a_job_that_is_not_waited_for_has_not_failed(submit):
    conf = "spark.kubernetes.submission.waitAppCompletion=false"
    done = submit("window_counts", "--", SAID="submitted", SPARK_CONF=conf, **MASTER)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "arguments, environment, said",
    [
        (["my.py", "--"], MASTER, "there is no file my.py"),
        (
            ["window_counts", "--"],
            MASTER | {"SETTINGS": "s.yaml"},
            "SETTINGS is 's.yaml', and there is no such file",
        ),
        ([], MASTER, "write: submit.sh JOB -- ARGUMENTS (submit.sh --help shows all settings)"),
        (
            ["window_counts", "--topic"],
            MASTER,
            "write: submit.sh JOB -- ARGUMENTS (submit.sh --help shows all settings)",
        ),
        (
            ["windows", "--"],
            MASTER,
            "there is no job 'windows'; choose from: dlq_router table_to_topic topic_to_table window_counts",
        ),
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
    assert len(read) == 10


def test_the_example_in_the_help_is_taken_by_the_job(submit):
    text = submit("--help").stdout
    words = shlex.split(text.partition("submit.sh window_counts -- ")[2].partition("\n\n")[0])
    words = [word for word in words if word.strip()]  # a backslash before the end of a line
    options = window_counts.parse_settings(words)
    assert (options.topic, options.sink, options.output) == ("flights", "delta", "/data/counts")


def test_the_script_and_the_image_agree_on_where_jobs_lie(submit):
    _, _, rest = split(submit("window_counts", "--", **MASTER).stdout)
    assert in_the_image(rest[0].removeprefix("local://"))
    assert not in_the_image("/opt/logfleet/jobs/nothing.py")
    assert in_the_image("/opt/logfleet/entrypoint.sh")


def test_what_shares_the_claim_of_a_submitted_job_runs_on_one_node():
    """Spark labels its pods with their role; only those whose label names the same claim count."""
    assert same_node(yaml.safe_load(POD.read_text())["spec"]) == {
        "labelSelector": {"matchExpressions": [{"key": "spark-role", "operator": "Exists"}]},
        "matchLabelKeys": [VOLUME_LABEL],
    }


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

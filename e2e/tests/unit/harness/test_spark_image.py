"""The contract of the Spark image's entrypoint with Kubernetes."""

import subprocess

import pytest

from e2e.harness.images import ROOT

SPARK = ROOT / "spark-on-k8s"
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "job-exec-1",
}


@pytest.fixture
def entrypoint(tmp_path):
    """Runs the entrypoint with programs that print their arguments, one a line."""
    for name in ("java", "bin/spark-submit"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)

    def run(*arguments: str, **environment: str) -> list[str]:
        base = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_HOME": str(tmp_path)}
        done = subprocess.run(
            [SPARK / "entrypoint.sh", *arguments],
            env=base | environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.splitlines()

    return run


def test_a_driver_submits_to_itself_with_the_arguments_it_was_given(entrypoint):
    said = entrypoint("driver", "--class", "X", "a b", SPARK_DRIVER_BIND_ADDRESS="10.0.0.5")
    assert said[0].endswith("/bin/spark-submit")
    assert said[1:5] == ["--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.5"]
    assert said[5:] == ["--class", "X", "a b"]


def test_a_driver_of_a_pod_of_its_own_names_that_pod(entrypoint):
    said = entrypoint(
        *("client", "local:///job.py", "a b"),
        POD_IP="10.0.0.5",
        POD_NAME="job-x",
        KUBERNETES_SERVICE_HOST="10.0.0.1",
        KUBERNETES_SERVICE_PORT="443",
    )
    assert said[1:5] == ["--deploy-mode", "client", "--master", "k8s://https://10.0.0.1:443"]
    conf = {word for word in said if word.startswith("spark.")}
    assert conf == {
        "spark.driver.host=10.0.0.5",
        "spark.driver.bindAddress=10.0.0.5",
        "spark.kubernetes.driver.pod.name=job-x",
    }
    assert said[-2:] == ["local:///job.py", "a b"]


JOB = """#!/bin/sh
# a spark-submit whose job says that it can stop, if it can
job() { trap 'echo job told; exit 0' TERM; [ -z "$CAN_STOP" ] || sh -c 'echo $PPID' > "$LOGFLEET_JOB_PID"; echo ready; while :; do sleep 0.05; done; }
trap 'echo submit told; kill $! 2>/dev/null; exit 143' TERM
job & wait $!
code=$?
exit $code
"""


@pytest.mark.parametrize("can_stop, told, code", [("1", "job told", 0), ("", "submit told", 143)])
def test_sigterm_reaches_the_job_if_it_can_end_its_batch_and_spark_otherwise(
    tmp_path, can_stop, told, code
):
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(JOB)
    program.chmod(0o755)
    base = {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    driver = subprocess.Popen(
        [SPARK / "entrypoint.sh", "driver"],
        env=base | {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5", "CAN_STOP": can_stop},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "ready\n"
    driver.terminate()
    assert driver.stdout.readline() == f"{told}\n"
    assert driver.wait(30) == code
    driver.stdout.close()


def test_an_executor_says_all_that_the_backend_asks_for(entrypoint):
    said = entrypoint("executor", **EXECUTOR)
    assert said[1:3] == ["-Xms512m", "-Xmx512m"]
    backend = said.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    words = said[backend + 1 :]
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "1",
        "--cores": "1",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "job-exec-1",
    }


def test_an_executors_options_keep_their_order_and_their_blanks(entrypoint):
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dx={number} y" for number in range(12)}
    said = entrypoint("executor", **EXECUTOR, **options)
    assert said[1:13] == [f"-Dx={number} y" for number in range(12)]


def test_an_executor_finds_the_configuration_that_is_mounted(entrypoint):
    said = entrypoint("executor", **EXECUTOR, SPARK_CONF_DIR="/opt/spark/conf")
    assert said[said.index("-cp") + 1].startswith("/opt/spark/conf:")


def test_other_commands_are_run_as_they_stand(entrypoint):
    assert entrypoint("printf", "%s", "hello") == ["hello"]

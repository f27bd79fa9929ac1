"""Spark jobs on a Kubernetes rig: submitted in cluster mode as a user does, results read from their volume."""

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from e2e.harness.images import ROOT, image_name
from e2e.harness.kube.kubernetes import RESTRICTED, Kubernetes, wait_for
from e2e.harness.kube.kubernetes_rig import SPARK_ZONE
from e2e.lab.commands import Argument, run

SUBMIT = ROOT / "spark-on-k8s" / "submit"
# Submission waits for the job's end.
SUBMIT_WITHIN_S = 600.0
ENDED_WITHIN_S = 30.0
# A job of a minute is over before the optimizing compiler pays.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Small enough for the lab's nodes, whose processors are the machine's.
CONF = (
    f"spark.driver.extraJavaOptions={JAVA_OPTIONS}",
    f"spark.executor.extraJavaOptions={JAVA_OPTIONS}",
    "spark.driver.memory=768m",
    "spark.executor.memory=768m",
    "spark.kubernetes.driver.request.cores=100m",
    "spark.kubernetes.executor.request.cores=100m",
    "spark.sql.shuffle.partitions=4",
    "spark.ui.enabled=false",
    # they are looked at when the job is over, and go with the driver's pod
    "spark.kubernetes.executor.deleteOnTermination=false",
)
# What a lab's node lacks of what the defaults ask for: it has the processors of the machine, which all nodes share.
FITS_NODE = (
    "spark.kubernetes.driver.request.cores=100m",
    "spark.kubernetes.executor.request.cores=100m",
)
READ_ROWS = """
import sys, deltalake
rows = deltalake.DeltaTable(sys.argv[1]).to_pandas(columns=sys.argv[2].split(","))
rows.to_csv(sys.stdout, index=False)
"""


class SparkJobs:
    """Jobs in a namespace of their own, whose volume `spark-data` lies in one zone."""

    def __init__(self, kubernetes: Kubernetes, namespace: str) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        kubernetes.create_namespace(namespace, RESTRICTED)
        kubernetes.apply(SUBMIT / "rbac.yaml", namespace=namespace)

    def run(self, name: str, job: str, arguments: Sequence[str], *, executors: int) -> str:
        """Run a job of the image in cluster mode, under a name used once, and give its driver's log.

        Raises LabError if it cannot be submitted, AssertionError with the log if it failed or without it if not all executors
        ran: spark-submit itself ends with 0 whatever became of the driver.
        """
        driver = self._submitted(name, job, arguments, executors)
        pod = driver["metadata"]["name"]
        log = self._kubernetes.wait_ended(pod, self._namespace, within_s=ENDED_WITHIN_S)
        ran = [pod["metadata"]["name"] for pod in self._executors(driver) if _ran(pod)]
        assert len(ran) == executors, f"{executors} executors were to run, these did: {ran}"
        return log

    def start(self, name: str, job: str, arguments: Sequence[str], *, executors: int) -> str:
        """Submit a job that runs until it is ended; its driver's pod."""
        forgotten = "spark.kubernetes.submission.waitAppCompletion=false"
        driver = self._submitted(name, job, arguments, executors, forgotten)
        return str(driver["metadata"]["name"])

    def _submitted(
        self, name: str, job: str, arguments: Sequence[str], executors: int, *conf: str
    ) -> dict[str, Any]:
        """The driver's pod, once spark-submit has ended."""
        environment = self._environment(name, (*CONF, *conf)) | {
            "IMAGE": image_name("spark"),
            "EXECUTORS": str(executors),
            "SPARK_SUBMIT_OPTS": JAVA_OPTIONS,
        }
        command: tuple[Argument, ...] = (SUBMIT / "submit.sh", job, "--", *arguments)
        run(*command, env=environment, timeout_s=SUBMIT_WITHIN_S)
        (driver,) = self._kubernetes.pods(self._namespace, _driver(name))
        return driver

    def submit(
        self, name: str, job: str, arguments: Sequence[str], log: Path
    ) -> "subprocess.Popen[bytes]":
        """Submit a job as it ships, under a name used once; what submit.sh says goes to the log. It ends with the job."""
        with log.open("ab") as stream:
            return subprocess.Popen(
                [SUBMIT / "submit.sh", job, "--", *arguments],
                env=self._environment(name, FITS_NODE) | {"SPARK_SUBMIT_OPTS": JAVA_OPTIONS},
                stdout=stream,
                stderr=stream,
            )

    def kill_driver(self, name: str, checkpoint: str) -> None:
        """The driver of that name dies without a word, once its query has committed a batch to the checkpoint."""
        kubernetes, namespace = self._kubernetes, self._namespace

        def committed() -> str | None:
            for driver in kubernetes.pods(namespace, _driver(name)):
                pod = str(driver["metadata"]["name"])
                if kubernetes.execute(pod, namespace, "ls", f"{checkpoint}/commits").split():
                    return pod
            return None

        pod = wait_for(f"a batch of {name}", committed, SUBMIT_WITHIN_S)
        kubernetes.kubectl("delete", "pod", pod, "--grace-period=0", "--force", namespace=namespace)

    def _environment(self, name: str, conf: Sequence[str]) -> dict[str, str]:
        """What submit.sh finds: where to, what for, and what the lab's nodes want."""
        binaries = Path(sys.executable).parent
        environment = {
            **os.environ,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._kubernetes.kubeconfig),
            "SPARK_MASTER": f"k8s://{self._kubernetes.server()}",
            "NAMESPACE": self._namespace,
            "APP_NAME": name,
            "ZONE": SPARK_ZONE,
            "SPARK_CONF": "\n".join(conf),
        }
        environment.pop("SPARK_HOME", None)  # another Spark of this machine is not the one locked
        return environment

    def rows(self, folder: str, columns: Sequence[str], claim: str = "spark-data") -> pd.DataFrame:
        """Columns of the Delta table in a folder of a claim, as a reader without Spark gives them, by a text of CSV."""
        name = f"read-{folder.strip('/').replace('/', '-')}"
        self._kubernetes.run_pod(
            name,
            self._namespace,
            image_name("test"),
            ["python", "-c", READ_ROWS, folder, ",".join(columns)],
            container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        )
        text = self._kubernetes.wait_ended(name, self._namespace, within_s=120)
        return pd.read_csv(io.StringIO(text))

    def _executors(self, driver: dict[str, Any]) -> list[dict[str, Any]]:
        """The pods of a driver's executors, which it owns; their label spark-app-name is what the job calls itself."""
        return [
            pod
            for pod in self._kubernetes.pods(self._namespace, "spark-role=executor")
            if driver["metadata"]["uid"]
            in [owner["uid"] for owner in pod["metadata"].get("ownerReferences", [])]
        ]

    def pod(self, name: str) -> dict[str, Any]:
        """A driver, as the API server has it."""
        return self._kubernetes.get("pod", name, self._namespace)

    def executors_running(self, driver: str) -> list[str]:
        """Names of the pods of a driver's executors that run."""
        executors = self._executors(self.pod(driver))
        return [
            each["metadata"]["name"] for each in executors if each["status"]["phase"] == "Running"
        ]

    def delete(self, driver: str) -> None:
        """End a job; its executors go with it."""
        self._kubernetes.delete("pod", driver, self._namespace)

    def counts(self, folder: str) -> pd.DataFrame:
        """What `window_counts` wrote to a folder of the volume: one row of each window and origin."""
        rows = self.rows(folder, ["window_start", "origin", "count"])
        rows["window_start"] = pd.to_datetime(rows["window_start"], utc=True).dt.tz_localize(None)
        return rows.sort_values(["window_start", "origin"], ignore_index=True)


def _driver(name: str) -> str:
    """Selects the driver of an application."""
    return f"spark-role=driver,spark-app-name={name}"


def _ran(pod: dict[str, Any]) -> bool:
    """Whether its container was started."""
    states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
    return any("running" in state or "terminated" in state for state in states)

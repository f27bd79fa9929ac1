"""Spark jobs on a Kubernetes rig, submitted in cluster mode; results are read from their volume."""

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
# spark-submit waits for the end of the job.
SUBMIT_WITHIN_S = 600.0
ENDED_WITHIN_S = 30.0
# A job of a minute ends before the optimizing compiler pays off.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Small enough for the lab's nodes, which share the machine's processors.
CONF = (
    f"spark.driver.extraJavaOptions={JAVA_OPTIONS}",
    f"spark.executor.extraJavaOptions={JAVA_OPTIONS}",
    "spark.driver.memory=768m",
    "spark.executor.memory=768m",
    "spark.kubernetes.driver.request.cores=100m",
    "spark.kubernetes.executor.request.cores=100m",
    "spark.sql.shuffle.partitions=4",
    "spark.ui.enabled=false",
    # keep executor pods after the job for inspection; they are deleted with the driver's pod
    "spark.kubernetes.executor.deleteOnTermination=false",
)
# Smaller requests than the default, as all nodes of a lab share the machine's processors.
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
    """Jobs in a namespace of their own, whose volume `spark-data` is in one zone."""

    def __init__(self, kubernetes: Kubernetes, namespace: str) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        kubernetes.create_namespace(namespace, RESTRICTED)
        kubernetes.apply(SUBMIT / "rbac.yaml", namespace=namespace)

    def run(self, name: str, job: str, arguments: Sequence[str], *, executors: int) -> str:
        """Run a job of the image in cluster mode; return its driver's log. The name must be unique.

        Raises LabError if it cannot be submitted, and AssertionError if it fails (with the log) or
        if not all executors ran: spark-submit itself always ends with 0.
        """
        driver = self._submitted(name, job, arguments, executors)
        pod = driver["metadata"]["name"]
        log = self._kubernetes.wait_ended(pod, self._namespace, within_s=ENDED_WITHIN_S)
        ran = [pod["metadata"]["name"] for pod in self._executors(driver) if _ran(pod)]
        assert len(ran) == executors, f"{executors} executors were to run, these did: {ran}"
        return log

    def start(self, name: str, job: str, arguments: Sequence[str], *, executors: int) -> str:
        """Submit a job that runs until it is ended; return its driver's pod."""
        forgotten = "spark.kubernetes.submission.waitAppCompletion=false"
        driver = self._submitted(name, job, arguments, executors, forgotten)
        return str(driver["metadata"]["name"])

    def _submitted(
        self, name: str, job: str, arguments: Sequence[str], executors: int, *conf: str
    ) -> dict[str, Any]:
        """Submit a job; return the driver's pod once spark-submit has ended."""
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
        """Start submit.sh for a job of the image under a unique name; it ends with the job.

        Its output goes to the log.
        """
        with log.open("ab") as stream:
            return subprocess.Popen(
                [SUBMIT / "submit.sh", job, "--", *arguments],
                env=self._environment(name, FITS_NODE) | {"SPARK_SUBMIT_OPTS": JAVA_OPTIONS},
                stdout=stream,
                stderr=stream,
            )

    def kill_driver(self, name: str, checkpoint: str) -> None:
        """Kill the driver of that name without a signal, once its query has committed a batch."""
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
        """Return the environment of submit.sh.

        It names master, namespace and image, and has settings for the lab's nodes.
        """
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
        # use the Spark of the lock file, not another one on this machine
        environment.pop("SPARK_HOME", None)
        return environment

    def rows(self, folder: str, columns: Sequence[str], claim: str = "spark-data") -> pd.DataFrame:
        """Read columns of the Delta table in a folder of a claim without Spark, as CSV."""
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
        """Return the pods that the driver owns as executors.

        Their label spark-app-name is the name that the job gives itself.
        """
        return [
            pod
            for pod in self._kubernetes.pods(self._namespace, "spark-role=executor")
            if driver["metadata"]["uid"]
            in [owner["uid"] for owner in pod["metadata"].get("ownerReferences", [])]
        ]

    def pod(self, name: str) -> dict[str, Any]:
        """Return the pod of a driver."""
        return self._kubernetes.get("pod", name, self._namespace)

    def executors_running(self, driver: str) -> list[str]:
        """Return the names of a driver's running executor pods."""
        executors = self._executors(self.pod(driver))
        return [
            each["metadata"]["name"] for each in executors if each["status"]["phase"] == "Running"
        ]

    def delete(self, driver: str) -> None:
        """End a job; its executors are deleted with it."""
        self._kubernetes.delete("pod", driver, self._namespace)

    def counts(self, folder: str) -> pd.DataFrame:
        """Return the output of `window_counts` in a folder of the volume.

        It has a row per window and origin.
        """
        rows = self.rows(folder, ["window_start", "origin", "count"])
        rows["window_start"] = pd.to_datetime(rows["window_start"], utc=True).dt.tz_localize(None)
        return rows.sort_values(["window_start", "origin"], ignore_index=True)


def _driver(name: str) -> str:
    """Return the label selector for the driver of an application."""
    return f"spark-role=driver,spark-app-name={name}"


def _ran(pod: dict[str, Any]) -> bool:
    """Return whether the pod's container was started."""
    states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
    return any("running" in state or "terminated" in state for state in states)

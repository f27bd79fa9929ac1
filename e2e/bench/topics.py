"""`make bench-topics`: how soon one changed Topic among 2,000 is Ready again, and what the operator costs while nothing changes.

The operator, the API server and the broker are real; nodes are not there, so pods only seem to run (e2e.harness.kube.control_plane). Prints a table and stores it in
e2e/results/topics.json. Times on the wall hold for a machine that has nothing else to do; processor time for any.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from e2e.bench.conditions import bench_rig, conditions
from e2e.bench.cpu import cpu_time, rss_kib
from e2e.harness.kube.control_plane import ControlPlane, Kubelets
from e2e.harness.kube.fleet import (
    CHARTS,
    OPERATOR_NAMESPACE,
    OPERATOR_RELEASE,
    TOPICS,
    topic,
)
from e2e.harness.kube.kubernetes import condition, wait_for
from e2e.harness.kube.stage import Stage, bring_up, small
from e2e.harness.operator_program import Operator
from e2e.harness.processes import Broker
from e2e.harness.results import RESULTS, source_key, store
from e2e.lab.settings import settings_from

STORE: Final = RESULTS / "topics.json"
SOURCES: Final = ("broker_image/src", "operator/src", "e2e/bench/topics.py")
NAMESPACE: Final = "many"
COUNT: Final = 2_000
CHANGES: Final = 20
IDLE_S: Final = 120.0
READY_WITHIN_S: Final = 1_200.0
CHANGED_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02


def name_of(number: int) -> str:
    return f"topic-{number}"


def apply_all(stage: Stage, count: int) -> None:
    items = [topic(name_of(number), "fleet") for number in range(count)]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    stage.kubernetes.kubectl(
        "create", "-f", "-", namespace=NAMESPACE, stdin=json.dumps(document), within_s=600
    )


def ready_count(stage: Stage) -> int:
    found = stage.kubernetes.items(TOPICS, NAMESPACE)
    return sum((condition(each, "Ready") or {}).get("status") == "True" for each in found)


def change(stage: Stage, name: str, spec: dict[str, Any]) -> float:
    """Seconds from the API server's taking it until the Topic says that it is so."""
    path = f"/apis/logfleet.dev/v1beta1/namespaces/{NAMESPACE}/topics/{name}"
    changed = stage.plane.request("PATCH", path, {"spec": spec})
    began = time.monotonic()
    generation = changed["metadata"]["generation"]
    while time.monotonic() < began + CHANGED_WITHIN_S:
        found = stage.plane.request("GET", path)
        ready = condition(found, "Ready") or {}
        if (ready.get("status"), ready.get("observedGeneration")) == ("True", generation):
            return time.monotonic() - began
        time.sleep(POLL_S)
    raise AssertionError(f"{name} is not Ready after {CHANGED_WITHIN_S:.0f} s")


def create(stage: Stage, name: str) -> float:
    stage.kubernetes.apply(topic(name, "fleet"), namespace=NAMESPACE)
    return change(stage, name, {"config": {"retention.ms": 7_000_000}})


def measure(stage: Stage, count: int, idle_s: float) -> dict[str, Any]:
    pid = stage.operator.pid
    bring_up(stage, NAMESPACE, small())
    began = time.monotonic()
    apply_all(stage, count)
    wait_for("all Topics to be Ready", lambda: ready_count(stage) == count, READY_WITHIN_S)
    made_s = time.monotonic() - began
    made_cpu_s = cpu_time(pid).total_ns / 1e9
    before = cpu_time(pid)
    config = {"retention.ms": 5_000_000}
    seconds = sorted(
        change(stage, name_of(number * count // CHANGES), {"config": config})
        for number in range(CHANGES)
    )
    changes_cpu_s = cpu_time(pid).since(before).total_ns / 1e9
    new_s = create(stage, "one-more")
    time.sleep(20)  # what the changes have set off is over
    before, since = cpu_time(pid), time.monotonic()
    time.sleep(idle_s)  # what is measured is a span of time
    idle = cpu_time(pid).since(before).total_ns / 1e9 / (time.monotonic() - since)
    return {
        "topics": count,
        "all_ready_s": round(made_s, 1),
        "all_ready_cpu_s": round(made_cpu_s, 1),
        "change_s_p50": round(seconds[len(seconds) // 2], 2),
        "change_s_most": round(seconds[-1], 2),
        "change_cpu_s": round(changes_cpu_s / CHANGES, 3),
        "created_and_changed_s": round(new_s, 2),
        "idle_cores": round(idle, 3),
        "rss_mib": rss_kib(pid) // 1024,
    }


def run(count: int, idle_s: float) -> dict[str, Any]:
    tools = settings_from(os.environ, Path.home()).bin
    with bench_rig("topics") as rig, contextlib.ExitStack() as stack:
        plane = ControlPlane(tools, rig.directory)
        stack.callback(plane.close)
        plane.start()
        chart = ("upgrade", "--install", OPERATOR_RELEASE, str(CHARTS / "operator"))
        plane.kubernetes.helm(*chart, "-n", OPERATOR_NAMESPACE, "--create-namespace")
        plane.kubernetes.create_namespace(NAMESPACE)
        broker = Broker(rig.directory / "broker")
        stack.callback(broker.close)
        kubelets = Kubelets(plane)
        stack.callback(kubelets.close)
        broker.start()
        kubelets.start()
        token = plane.kubeconfig_of(OPERATOR_RELEASE, OPERATOR_NAMESPACE)
        operator = Operator(
            rig.directory / "operator", token, broker, lease_namespace=OPERATOR_NAMESPACE
        )
        stack.callback(operator.close)
        operator.start()
        return measure(Stage(plane, kubelets, operator, broker), count, idle_s)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-topics")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--idle", type=float, default=IDLE_S)
    given = parser.parse_args()
    found = run(given.count, given.idle)
    for key, value in found.items():
        print(f"{key:<24}{value:>12}")
    if given.count == COUNT:
        store(STORE, source_key(*SOURCES), {**found, "conditions": conditions()})
    return 0


if __name__ == "__main__":
    sys.exit(main())

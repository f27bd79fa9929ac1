import json
from pathlib import Path

import pytest

from e2e.harness.kube import evidence
from e2e.harness.kube.kubernetes import Kubernetes

METADATA = {"namespace": "there", "name": "x", "creationTimestamp": "2026-01-01T00:00:01Z"}
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
WAITING = {"reason": "ImagePullBackOff", "message": "no such image"}


def pod(phase: str, ready: str, **container: object) -> dict[str, object]:
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{"name": "main", "restartCount": 1, **container}],
    }
    return {"metadata": METADATA, "spec": {"nodeName": "node-a"}, "status": status}


@pytest.mark.parametrize(
    "status, line",
    [
        ({"conditions": [READY]}, None),
        (
            {"conditions": [READY | {"status": "False", "reason": "Invalid", "message": "why"}]},
            "Topic there/x is not Ready: Invalid: why",
        ),
        ({}, "Topic there/x is not Ready: the operator has not said anything"),
    ],
    ids=["ready", "refused", "not seen"],
)
def test_a_resource_is_told_of_unless_it_is_ready(status, line):
    resource = {"kind": "Topic", "metadata": METADATA, "status": status}
    assert evidence.resource_line(resource) == line


@pytest.mark.parametrize(
    "seen, line",
    [
        (pod("Running", "True"), None),
        (pod("Succeeded", "False"), None),
        (
            pod("Pending", "False", state={"waiting": WAITING}),
            "pod there/x on node-a, Pending: main waiting ImagePullBackOff no such image",
        ),
        (
            pod("Failed", "False", state={"terminated": {"exitCode": 1, "reason": "Error"}}),
            "pod there/x on node-a, Failed: main terminated Error",
        ),
        (
            {
                "metadata": METADATA,
                "status": {
                    "phase": "Pending",
                    "conditions": [{"type": "PodScheduled", "status": "False", "message": "full"}],
                },
            },
            "pod there/x on no node, Pending: full",
        ),
    ],
    ids=["ready", "ended", "no image", "failed", "no node"],
)
def test_a_pod_is_told_of_if_something_keeps_it(seen, line):
    assert evidence.pod_line(seen) == line


def test_only_the_last_warnings_are_shown_oldest_first():
    events = [
        {
            "metadata": METADATA,
            "involvedObject": {"kind": "Pod", "name": "x"},
            "reason": "BackOff",
            "message": f"number {number}",
            "lastTimestamp": f"2026-01-01T00:00:{number:02}Z",
        }
        for number in reversed(range(evidence.EVENTS_SHOWN + 2))
    ]
    lines = evidence.warning_lines([*events, events[0] | {"reason": "CgroupV1"}])
    assert len(lines) == evidence.EVENTS_SHOWN
    assert lines[0] == "2026-01-01T00:00:02Z Pod there/x BackOff x1: number 2"
    assert lines[-1].endswith(f"number {evidence.EVENTS_SHOWN + 1}")


@pytest.fixture
def kubectl(tmp_path):
    """A kubectl that answers every question the same; gives its path."""

    def answering(answer: str, code: int = 0) -> Kubernetes:
        program = tmp_path / "kubectl"
        (tmp_path / "answer").write_text(answer)
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer; exit {code}\n")
        program.chmod(0o755)
        return Kubernetes(Path("/kubeconfig"), tmp_path)

    return answering


def test_an_api_server_that_is_gone_leaves_a_page_and_a_folder_all_the_same(kubectl, tmp_path):
    cluster = kubectl("connection refused", code=1)
    assert evidence.page(cluster) == "no warning events"
    evidence.keep(cluster, tmp_path / "kept")
    assert {file.name for file in (tmp_path / "kept").iterdir()} == set(evidence.FILES)


def test_logs_of_every_pod_are_kept_and_of_its_former_container(kubectl, tmp_path):
    listed = {"items": [pod("Running", "True"), pod("Pending", "False") | {"status": {}}]}
    listed["items"][1]["metadata"] = METADATA | {"name": "new"}
    evidence.keep(kubectl(json.dumps(listed)), tmp_path / "kept")
    logs = {file.name for file in (tmp_path / "kept").glob("*.log")}
    assert logs == {"there-x.log", "there-x-previous.log", "there-new.log"}

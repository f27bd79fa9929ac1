from datetime import UTC, datetime
from typing import Any

import pytest
from logfleet_operator.clusters.etcd import EMPTY_VOLUME_EXIT
from logfleet_operator.clusters.observed import EMPTY_VOLUME, differences, differs, pod_from

NOW = datetime(2026, 1, 1, tzinfo=UTC)

ENTRIES = {"env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}
UDP = {"port": 1, "protocol": "UDP"}


@pytest.mark.parametrize(
    "wanted, live, different",
    [
        ({"a": 1}, {"a": 1, "default": 2}, False),
        ({"a": 1}, {"a": 2}, True),
        ({"a": 1}, {}, True),
        ({"a": {}, "b": "", "c": []}, {}, False),
        ({"a": {"b": 1}}, {"a": None}, True),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, False),
        ({"a": [1]}, {"a": [1, 2]}, True),
        # A list map has entries of others beside ours, in any order; an entry is known by its keys.
        ({"env": [{"name": "a", "value": "1"}]}, ENTRIES, False),
        ({"env": [{"name": "b", "value": "2"}, {"name": "a", "value": "1"}]}, ENTRIES, False),
        ({"env": [{"name": "a", "value": "3"}]}, ENTRIES, True),
        ({"env": [{"name": "c", "value": "1"}]}, ENTRIES, True),
        ({"env": [{"name": "a"}]}, {"env": None}, True),
        ({"ports": [{"port": 1}]}, {"ports": [UDP, {**UDP, "protocol": "TCP"}]}, False),
        ({"ports": [{"port": 1}]}, {"ports": [UDP]}, True),
        ({"ports": [{"containerPort": 1}]}, {"ports": [UDP]}, True),
        # Others are atomic: an apply replaces them whole.
        ({"args": ["1"]}, {"args": ["1", "2"]}, True),
        ({"cpu": "0.5"}, {"cpu": "500m"}, False),
        ({"memory": "1024Mi"}, {"memory": "1Gi"}, False),
        ({"memory": "1Gi"}, {"memory": "1G"}, True),
        ({"port": 1}, {"port": "1"}, True),
    ],
)
def test_only_what_is_wanted_is_compared(
    wanted: dict[str, Any],
    live: dict[str, Any],
    different: bool,  # noqa: FBT001  # a column of the table
) -> None:
    assert differs(wanted, live) is different


def test_what_differs_is_named_as_a_person_would_find_it() -> None:
    wanted = {
        "metadata": {"labels": {"a.b/c": "1"}},
        "spec": {"containers": [{"name": "broker", "image": "1", "command": ["x", "y"]}]},
    }
    live = {
        "metadata": {"labels": {}},
        "spec": {"containers": [{"name": "mesh"}, {"name": "broker", "image": "2"}]},
    }
    assert list(differences(wanted, live)) == [
        ("metadata.labels.a.b/c", None),
        ("spec.containers[broker].image", "2"),
        ("spec.containers[broker].command", None),
    ]


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "uid": "1", "labels": {}}, "status": status}


@pytest.mark.parametrize(
    "status, stuck",
    [
        ({}, ""),
        (
            {
                "containerStatuses": [
                    {"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}}
                ]
            },
            "",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                ]
            },
            "CrashLoopBackOff",
        ),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ]
            },
            "Unschedulable",
        ),
        (
            {
                "initContainerStatuses": [
                    {
                        "name": "gate",
                        "ready": False,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": EMPTY_VOLUME_EXIT}},
                    }
                ]
            },
            EMPTY_VOLUME,
        ),
        (
            {
                "initContainerStatuses": [
                    {
                        "name": "gate",
                        "ready": False,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ]
            },
            "CrashLoopBackOff",
        ),
        (
            {
                "initContainerStatuses": [
                    {"name": "gate", "ready": True, "state": {"terminated": {"exitCode": 0}}}
                ]
            },
            "",
        ),
    ],
)
def test_a_pod_tells_why_it_cannot_run(status: dict[str, Any], stuck: str) -> None:
    assert pod_from(pod(**status), NOW).stuck == stuck


def test_a_pod_is_ready_when_kubernetes_says_so() -> None:
    assert pod_from(pod(conditions=[{"type": "Ready", "status": "True"}]), NOW).ready
    assert not pod_from(pod(conditions=[{"type": "Ready", "status": "False"}]), NOW).ready
    assert not pod_from(pod(), NOW).ready


@pytest.mark.parametrize(
    "since, fresh", [("2025-12-31T23:59:31Z", True), ("2025-12-31T23:59:30Z", False), (None, False)]
)
def test_a_pod_is_fresh_for_half_a_minute_after_it_became_ready(since, fresh):
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    assert pod_from(pod(conditions=[ready]), NOW).fresh == fresh
    assert not pod_from(pod(conditions=[{**ready, "status": "False"}]), NOW).fresh

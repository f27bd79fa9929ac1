from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from logfleet_operator.clusters.cluster_reader import Readiness
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
    assert pod_from(pod(**status)).stuck == stuck


def test_a_pod_is_ready_when_kubernetes_says_so() -> None:
    assert pod_from(pod(conditions=[{"type": "Ready", "status": "True"}])).ready
    assert not pod_from(pod(conditions=[{"type": "Ready", "status": "False"}])).ready
    assert not pod_from(pod()).ready


def became_ready(since: str, status: str = "True") -> dict[str, Any]:
    return pod(conditions=[{"type": "Ready", "status": status, "lastTransitionTime": since}])


def fresh(readiness: Readiness, live: dict[str, Any], after_s: float) -> bool:
    return bool(readiness.fresh("air", "fleet", [live], NOW + timedelta(seconds=after_s)))


AN_HOUR_AGO, HALF_A_MINUTE_AGO, AN_HOUR_AHEAD = (
    "2025-12-31T23:00:00Z",
    "2025-12-31T23:59:30Z",
    "2026-01-01T01:00:00Z",
)


@pytest.mark.parametrize("written", [AN_HOUR_AGO, AN_HOUR_AHEAD])
def test_a_pod_is_fresh_for_half_a_minute_after_it_was_seen_to_become_ready(written: str) -> None:
    readiness = Readiness()
    assert not fresh(readiness, became_ready(written, "False"), 0)
    assert fresh(readiness, became_ready(written), 1)
    assert fresh(readiness, became_ready(written), 30)
    assert not fresh(readiness, became_ready(written), 31)


def test_one_that_became_ready_again_between_two_looks_is_fresh_again() -> None:
    readiness = Readiness()
    assert not fresh(readiness, became_ready(AN_HOUR_AGO), 0)
    assert fresh(readiness, became_ready(HALF_A_MINUTE_AGO), 1)


@pytest.mark.parametrize(
    "written, at_first", [(AN_HOUR_AGO, False), (HALF_A_MINUTE_AGO, False), (AN_HOUR_AHEAD, True)]
)
def test_one_that_was_ready_when_the_operator_began_is_fresh_for_half_a_minute_at_most(
    written: str,
    at_first: bool,  # noqa: FBT001  # a column of the table
) -> None:
    readiness = Readiness()
    assert fresh(readiness, became_ready(written), 0) == at_first
    assert not fresh(readiness, became_ready(written), 30)
    readiness.remove("air", "fleet")
    assert fresh(readiness, became_ready(written), 31) == at_first

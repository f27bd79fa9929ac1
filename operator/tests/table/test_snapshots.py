"""Snapshots of the metadata store: the CronJob follows the spec, and failures are reported."""

from typing import Any

import pytest

from .operation import at_rest, cluster
from .world import World

pytestmark = pytest.mark.asyncio
SNAPSHOTS = {"schedule": "17 * * * *", "claimName": "backups", "keep": 3}
METADATA = {"managed": {"replicas": 3, "storage": {"size": "1Gi"}, "snapshots": SNAPSHOTS}}


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.one("Cluster", "fleet")["status"]
    return found


async def test_they_are_taken_by_a_job_of_the_brokers_image_and_no_more_when_not_wanted() -> None:
    world, operation = await at_rest(metadata=METADATA)
    made = world.one("CronJob", "fleet-snapshots")
    assert made["spec"]["schedule"] == "17 * * * *"
    assert made["metadata"]["ownerReferences"][0]["name"] == "fleet"
    pod = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "logfleet/broker:1"
    assert "--keep=3" in pod["containers"][0]["command"]
    assert {"name": "backup", "persistentVolumeClaim": {"claimName": "backups"}} in pod["volumes"]
    world.put(cluster())
    await operation.until_at_rest()
    assert world.named("CronJob") == []
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_to_want_them_replaces_no_pod() -> None:
    world, operation = await at_rest()
    before = {name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")}
    world.put(cluster(metadata=METADATA))
    await operation.until_at_rest()
    assert world.named("CronJob") == ["fleet-snapshots"]
    assert {
        name: world.one("Pod", name)["metadata"]["uid"] for name in world.named("Pod")
    } == before


async def test_when_the_last_one_was_is_told_and_that_one_failed() -> None:
    world, operation = await at_rest(metadata=METADATA)
    live = world.one("CronJob", "fleet-snapshots")
    done = {
        "lastScheduleTime": "2026-01-01T00:17:00Z",
        "lastSuccessfulTime": "2026-01-01T00:17:09Z",
    }
    world.touch({**live, "metadata": {**live["metadata"]}, "status": done})
    await operation.until_at_rest()
    assert status(world)["metadata"]["lastSnapshot"] == "2026-01-01T00:17:09Z"
    assert status(world)["warnings"] == []
    live = world.one("CronJob", "fleet-snapshots")
    late = {**done, "lastScheduleTime": "2026-01-01T01:17:00Z"}
    world.touch({**live, "metadata": {**live["metadata"]}, "status": late})
    world.now_s = 2 * 3600
    await operation.until_at_rest()
    (warning,) = status(world)["warnings"]
    assert "snapshot of the metadata store of 2026-01-01T01:17:00Z failed" in warning


async def test_a_mistake_names_its_field() -> None:
    wrong = {"managed": {**METADATA["managed"], "snapshots": {**SNAPSHOTS, "schedule": "hourly"}}}
    world, _ = await at_rest(metadata=wrong)
    assert world.ready("Cluster", "fleet") == ("False", "Invalid")
    assert "spec.metadata.managed.snapshots.schedule" in status(world)["why"]

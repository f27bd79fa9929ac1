"""Statuses of resources that are deleted, and perhaps made anew, while the operator works on them."""

import pytest

from .operation import Operation, cluster, topic
from .world import Manifest, World

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("document", [cluster(paused=True), topic(clusterRef={"name": "fleet"})])
@pytest.mark.parametrize("again", [True, False])
async def test_no_status_is_written_for_a_namesake(document: Manifest, *, again: bool) -> None:
    kind, name = document["kind"], document["metadata"]["name"]
    world = World()
    world.put(document)
    written: list[Manifest] = []

    def replace(number: int) -> None:
        if world.calls[number] == f"status {kind} {name}" and not written:
            written.append(world.one(kind, name))
            world.remove(kind, name)
            if again:
                world.put(document)

    world.before_call = replace
    operation = Operation(world)
    await operation.round()
    assert written
    assert operation.worker.queue.retried == (1 if again else 0)
    assert (name in world.named(kind)) == again
    assert not again or "status" not in world.one(kind, name)

"""Resources that are deleted and perhaps made anew, also while the operator works on them."""

import pytest

from .operation import Operation, blocked, cluster, fleet, topic
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


async def test_a_cluster_made_anew_is_told_nothing_of_the_former_one_s_topics() -> None:
    names_of = [f"topic-{number}" for number in range(4)]
    world, operation = await fleet(*(topic(name) for name in names_of))
    for name in names_of:
        world.remove("Topic", name)
    await operation.until_at_rest()
    assert blocked(world)
    former = world.one("Cluster", "fleet")["metadata"]
    world.remove("Cluster", "fleet")
    operation.feed.cluster(former)
    await operation.until_at_rest()
    world.put(cluster(paused=True))
    await operation.until_at_rest()
    assert blocked(world) == ""

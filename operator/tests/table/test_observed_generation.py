"""A status names the generation of the spec that it is about, for clients that wait for it."""

from typing import Any

import pytest

from .operation import cluster, fleet, topic
from .world import World

pytestmark = pytest.mark.asyncio


def observed(world: World, kind: str, name: str) -> set[int]:
    status = world.one(kind, name)["status"]
    ready = (each for each in status["conditions"] if each["type"] == "Ready")
    return {each["observedGeneration"] for each in (status, *ready)}


@pytest.mark.parametrize(
    "made, changed, invalid",
    [
        (cluster(), cluster(image="logfleet/broker:2"), cluster(pools=[])),
        (topic(), topic(partitions=9), topic(topicName="no such/name")),
        (topic(), topic(partitions=3), topic(topicName="no such/name")),  # refused: it has six
    ],
)
async def test_it_is_the_generation_that_was_last_looked_at(
    made: dict[str, Any], changed: dict[str, Any], invalid: dict[str, Any]
) -> None:
    kind, name = made["kind"], made["metadata"]["name"]
    world, operation = await fleet(topic())
    for generation, document in enumerate((made, changed, invalid, made), 1):
        world.put(document)
        await operation.until_at_rest()
        assert world.one(kind, name)["metadata"]["generation"] == generation
        assert observed(world, kind, name) == {generation}
        assert (world.ready(kind, name)[1] == "Invalid") == (document is invalid)

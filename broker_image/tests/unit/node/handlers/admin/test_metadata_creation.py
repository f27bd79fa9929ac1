import asyncio

import pytest
from logfleet.node.handlers import metadata_creation

pytestmark = pytest.mark.asyncio


async def settled(creator) -> None:
    async with asyncio.timeout(20):
        await asyncio.gather(*creator._creating.values())


async def test_a_topic_is_created_once_however_often_it_is_wanted(node):
    creator = node.topic_creator
    creator.want(["t"])
    creator.want(["t", "u"])
    assert set(creator._creating) == {"t", "u"}
    await settled(creator)
    assert {topic.name for topic in node.image.topics()} == {"t", "u"}
    creator.want(["t"])
    await settled(creator)
    assert creator._refused_until_s == {}, "that it is there already is no refusal"


async def test_a_refused_topic_is_not_tried_at_every_request(start):
    node = await start()
    await node.until(lambda image: image.controller is not None)
    creator = node.topic_creator
    creator.want(["t"])
    await settled(creator)
    assert set(creator._refused_until_s) == {"t"}
    creator.want(["t"])
    assert creator._creating == {}
    creator._refused_until_s["t"] = 0.0
    await node.register()
    creator.want(["t"])
    await settled(creator)
    assert node.image.topic("t") is not None


async def test_not_everything_is_created_at_once(node, monkeypatch):
    monkeypatch.setattr(metadata_creation, "CREATING_MAX", 2)
    node.topic_creator.want(["a", "b", "c"])
    assert set(node.topic_creator._creating) == {"a", "b"}
    await settled(node.topic_creator)


async def test_closing_stops_what_is_being_created(start):
    node = await start(stands=False)
    node.topic_creator.want(["t"])
    (task,) = node.topic_creator._creating.values()
    await node.topic_creator.close()
    assert task.cancelled()
    assert node.topic_creator._creating == {}

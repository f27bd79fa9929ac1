import asyncio

import pytest
from logfleet.controller.running.access import Origin
from logfleet.node import topic_creator
from logfleet.wire.messages import MetadataRequest

from broker_image.tests.unit.node.handlers.admin.test_quotas import alteration

pytestmark = pytest.mark.asyncio
CLIENT = Origin(0, client_id="app", host="127.0.0.1")


async def until_answered(creator) -> None:
    async with asyncio.timeout(20):
        await asyncio.gather(*creator._creating.values())


async def test_a_topic_is_created_once_however_often_it_is_wanted(node):
    creator = node.topic_creator
    creator.want(["t"], CLIENT)
    creator.want(["t", "u"], CLIENT)
    assert set(creator._creating) == {"t", "u"}
    await until_answered(creator)
    assert {topic.name for topic in node.image.topics()} == {"t", "u"}
    creator.want(["t"], CLIENT)
    await until_answered(creator)
    assert creator._refused_until_s == {}, "that it is there already is no refusal"


async def test_a_refused_topic_is_not_tried_at_every_request(start):
    node = await start()
    await node.until(lambda image: image.controller is not None)
    creator = node.topic_creator
    creator.want(["t"], CLIENT)
    await until_answered(creator)
    assert set(creator._refused_until_s) == {"t"}
    creator.want(["t"], CLIENT)
    assert creator._creating == {}
    creator._refused_until_s["t"] = 0.0
    await node.register()
    creator.want(["t"], CLIENT)
    await until_answered(creator)
    assert node.image.topic("t") is not None


async def test_not_everything_is_created_at_once(node, monkeypatch):
    monkeypatch.setattr(topic_creator, "CREATING_MAX", 2)
    node.topic_creator.want(["a", "b", "c"], CLIENT)
    assert set(node.topic_creator._creating) == {"a", "b"}
    await until_answered(node.topic_creator)


async def test_closing_stops_what_is_being_created(start):
    node = await start(stands=False)
    node.topic_creator.want(["t"], CLIENT)
    (task,) = node.topic_creator._creating.values()
    await node.topic_creator.close()
    assert task.cancelled()
    assert node.topic_creator._creating == {}


@pytest.mark.parametrize("client_id, is_refused", [("test", True), ("other", False)])
async def test_what_a_client_creates_by_asking_counts_towards_its_quota(
    node, client_id, is_refused
):
    """The quota lets one change pass and refuses the next for hours."""
    rate = ("controller_mutation_rate", 0.001)
    await node.ask(alteration(rate, entity=(("client-id", client_id),)))
    node.quotas.update(node.image.quotas)
    for name in ("t", "u"):
        topic = MetadataRequest.MetadataRequestTopic(name=name)
        await node.ask(MetadataRequest(topics=[topic], allow_auto_topic_creation=True))
        await until_answered(node.topic_creator)
    assert node.image.topic("t") is not None
    assert (node.image.topic("u") is None) is is_refused
    assert set(node.topic_creator._refused_until_s) == ({"u"} if is_refused else set())

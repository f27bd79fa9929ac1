import asyncio
from collections.abc import Mapping

import pytest
from logfleet.config.broker import broker_config
from logfleet.config.topic import BrokerLayers
from logfleet.metadata.image import ClusterImage
from logfleet.node.coordinators import internal_topic
from logfleet.node.coordinators.internal_topic import InternalTopic
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

pytestmark = pytest.mark.asyncio

NAME = "__transaction_state"


class Rig:
    """created: what was asked of the controller. tasks: what runs for the topic."""

    def __init__(self) -> None:
        self.created: list[tuple[str, int, int, Mapping[str, str]]] = []
        self.refusal: Refusal | None = None
        self.tasks: list[asyncio.Task[None]] = []
        config = broker_config({"transaction.state.log.replication.factor": "2"})
        self.topic = InternalTopic(
            NAME,
            event_prefix="transaction_state",
            at_creation=7,
            configs={"cleanup.policy": "compact"},
            layers=BrokerLayers(config.static),
            hint="add brokers",
            create_topic=self.create_topic,
            spawn=self.spawn,
        )

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> Refusal | None:
        self.created.append((name, partitions, replication_factor, configs))
        return self.refusal

    def spawn(self, coroutine) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(coroutine))
        return self.tasks[-1]


async def test_it_is_created_once_as_described():
    rig = Rig()
    assert rig.topic.partitions(ClusterImage()) == 0
    rig.topic.want(ClusterImage())
    rig.topic.want(ClusterImage())
    await asyncio.gather(*rig.tasks)
    rig.topic.want(ClusterImage())
    assert rig.created == [(NAME, 7, 2, {"cleanup.policy": "compact"})]
    assert len(rig.tasks) == 1, "there is a pause before the next try"


async def test_a_refusal_is_reported_with_what_to_do_unless_the_topic_is_there(capsys, monkeypatch):
    monkeypatch.setattr(internal_topic, "CREATE_AGAIN_S", 0)
    rig = Rig()
    for error in (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.TOPIC_ALREADY_EXISTS):
        rig.refusal = Refusal(error, "refused")
        rig.topic.want(ClusterImage())
        await rig.tasks[-1]
        await asyncio.sleep(0)
    reported = capsys.readouterr().out
    assert len(rig.created) == 2
    assert reported.count("transaction_state_not_created") == 1
    assert "add brokers" in reported

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logfleet.log.partition_log import PartitionLog
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import Changes
from logfleet.node.broker import Broker
from logfleet.node.partitions.replica import FollowerPartition, Replica
from logfleet.types import BrokerEpoch
from logfleet.wire.messages import IncrementalAlterConfigsRequest

from broker_image.tests.unit.node.broker_rig import (
    ask_broker,
    config,
    create_topic,
    registered_again,
)
from broker_image.tests.unit.node.partitions.topic_rig import T0, append, led

pytestmark = pytest.mark.asyncio


async def set_retention(broker: Broker, retention_ms: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name="retention.ms", value=str(retention_ms)
            )
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await ask_broker(broker, request, 1)
    assert [row.error_code for row in answer.responses] == [0]
    await broker.rooms.hosting.local.until_applied(broker.image.revision)


async def test_logs_are_made_a_few_in_each_turn_of_the_loop(tmp_path: Path) -> None:
    """Other work of the loop goes on, above all the keepalives of the lease."""
    made, this_turn = [], 0
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal this_turn
        made.append(this_turn)
        this_turn = 0
        loop.call_soon(turn)

    async with Broker(config(tmp_path)) as broker:
        create = broker.rooms.disks.log_dirs.create

        def counted(*arguments: Any) -> PartitionLog:
            nonlocal this_turn
            this_turn += 1
            return create(*arguments)

        broker.rooms.disks.log_dirs.create = counted  # type: ignore[method-assign, assignment]
        turn()
        await create_topic(broker, "t", 200)
    assert sum(made) == 200
    assert max(made) < 100


async def test_a_log_obeys_what_was_set_while_it_was_not_led(tmp_path: Path, until: Any) -> None:
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        broker.rooms.hosting.local.lost_registration()
        await set_retention(broker, 1000)
        registered_again(broker)
        await until(lambda: broker.rooms.partitions.get("t", 0) is not None)
        assert led(broker).config.retention_ms == 1000


def with_leader(image: ClusterImage, leader: int, leader_epoch: int) -> ClusterImage:
    """Topic t has replicas on brokers 1 and 2."""
    topic = image.topic("t")
    assert topic is not None
    state = msgspec.structs.replace(
        topic.partitions[0],
        replicas=(2, 1),
        isr=((2, 9), *topic.partitions[0].isr),
        leader=leader,
        leader_epoch=leader_epoch,
    )
    topic = msgspec.structs.replace(topic, partitions=(state,))
    return msgspec.structs.replace(image, entries=image.entries.updated({topic.id: topic}))


async def test_a_partition_that_another_broker_leads_is_followed_and_led_again(
    tmp_path: Path, until: Any
) -> None:
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        image, log, table = broker.image, led(broker), broker.rooms.partitions
        topic = image.topic("t")
        assert topic is not None
        subscription = broker.rooms.hosting.local._subscription
        assert subscription is not None
        subscription.publish(with_leader(image, 2, 1), Changes(topics={topic.id}))
        await until(lambda: isinstance(table.replica(topic.id, 0), FollowerPartition))
        followed = table.replica(topic.id, 0)
        assert isinstance(followed, FollowerPartition)
        assert (followed.leader, followed.leader_epoch, followed.log) == (2, 1, log)
        assert table.get("t", 0) is None
        subscription.publish(with_leader(image, 1, 2), Changes(topics={topic.id}))
        await until(lambda: table.get("t", 0) is not None)
        assert (led(broker), followed.is_following) == (log, False)


async def test_a_registration_newer_than_the_image_hosts_what_it_should_once_the_image_shows_it(
    tmp_path: Path, until: Any
) -> None:
    """The broker was cut off and has seen all changes of its partitions before the registration's.

    So no partition changes when the image shows it.
    """
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        local, table = broker.rooms.hosting.local, broker.rooms.partitions
        subscription, topic = local._subscription, broker.image.topic("t")
        assert subscription is not None
        assert topic is not None
        epoch = broker.image.revision + 1
        local.lost_registration()
        local._applied.clear()
        local.registered(BrokerEpoch(epoch))
        await local._applied.wait()
        image = msgspec.structs.replace(with_leader(broker.image, 2, 1), revision=epoch)
        subscription.publish(image, Changes(parts={"brokers"}))
        await until(lambda: isinstance(table.replica(topic.id, 0), FollowerPartition))


async def test_what_is_committed_is_known_after_a_restart_before_there_is_a_leader(
    tmp_path: Path, until: Any
) -> None:
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        log = led(broker)
        append(log, 3)
        next(broker.rooms.partitions.led()).ends.high_watermark = 2
    async with Broker(config(tmp_path)) as broker:
        assert broker.rooms.disks.log_dirs.high_watermark_of(T0) == 2
        broker.rooms.hosting.local.lost_registration()
        (replica,) = broker.rooms.partitions
        assert type(replica) is Replica
        broker.rooms.partitions.remove(replica)
        topic = broker.image.topic("t")
        assert topic is not None
        await broker.rooms.hosting.local._logs.replica_for(
            broker.image, topic, 0, log.config, lambda: True
        )
        (replica,) = broker.rooms.partitions
        assert (replica.high_watermark, replica.log.log_end_offset) == (2, 3)

import asyncio
from typing import Any

import pytest
from logfleet.log.config import LogConfig
from logfleet.node.handlers.ack_waits import ack_error, wait_acked
from logfleet.node.partitions.partition import Partition
from logfleet.records.record import Record, build_batch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.handlers.conftest import Held
from broker_image.tests.unit.node.partitions.replicas_rig import A, B, C, fetch, replicated, shrink

pytestmark = pytest.mark.asyncio
NOW = 1_700_000_000_000
LONG_MS = 60_000


@pytest.fixture
def partition(host: Any) -> Partition:
    """Three replicas, and one batch that no follower has."""
    made: Partition = host.host(replicas_state=replicated())
    made.append(build_batch([Record(None, b"v", NOW)]), NOW)
    return made


async def begin(host: Any, *batches: Any, acks: int = -1, timeout_ms: int = LONG_MS) -> Any:
    waiting = asyncio.ensure_future(wait_acked(host, batches, acks, timeout_ms))
    await asyncio.sleep(0)
    return waiting


async def test_all_batches_of_a_request_are_waited_for(host: Any, partition: Partition) -> None:
    other = host.host("other", replicas_state=replicated())
    other.append(build_batch([Record(None, b"v", NOW)]), NOW)
    waiting = await begin(host, (partition, 1), (other, 1))
    assert host.parked.produces == 1
    for each in (partition, other):
        assert not waiting.done()
        fetch(each, B, 1)
        fetch(each, C, 1)
    await waiting
    assert [ack_error(each, 1, -1) for each in (partition, other)] == [ErrorCode.NONE] * 2
    assert host.parked.produces == 0


async def test_acks_of_the_leader_alone_wait_for_no_follower(
    host: Any, partition: Partition
) -> None:
    await wait_acked(host, [(partition, 1)], 1, LONG_MS)
    assert ack_error(partition, 1, 1) is ErrorCode.NONE


async def test_followers_are_waited_for_no_longer_than_asked(
    host: Any, partition: Partition
) -> None:
    fetch(partition, B, 1)
    await wait_acked(host, [(partition, 1)], -1, 1)
    assert ack_error(partition, 1, -1) is ErrorCode.REQUEST_TIMED_OUT
    assert not partition._ack_waits


@pytest.mark.parametrize("acks", [1, -1])
async def test_the_brokers_own_disk_is_waited_for_as_long_as_it_takes(host: Any, acks: int) -> None:
    """As within Kafka's append: nothing has failed, and a retry would not be faster."""
    config = LogConfig(flush_messages=1)
    partition = host.host(config=config, rule=Held(), replicas_state=replicated())
    partition.append(build_batch([Record(None, b"v", NOW)]), NOW)
    waiting = await begin(host, (partition, 1), acks=acks, timeout_ms=0)
    ticked = asyncio.get_running_loop().create_future()
    host.timers.add(0, lambda: ticked.set_result(None))
    await ticked
    for member in (B, C):
        fetch(partition, member, 1)
    assert not waiting.done()
    partition.commit(1)
    await waiting
    assert ack_error(partition, 1, acks) is ErrorCode.NONE


async def test_what_too_few_have_when_it_is_committed_is_said_so(
    host: Any, partition: Partition
) -> None:
    waiting = await begin(host, (partition, 1))
    fetch(partition, B, 1)
    shrink(partition, A, B)
    shrink(partition, A)
    await waiting
    assert ack_error(partition, 1, -1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert ack_error(partition, 1, 1) is ErrorCode.NONE


async def test_nothing_is_acknowledged_in_another_leader_epoch_than_it_was_appended(
    host: Any, partition: Partition
) -> None:
    waiting = await begin(host, (partition, 1))
    partition.end()
    await waiting
    assert ack_error(partition, 1, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await wait_acked(host, [(partition, 1)], -1, LONG_MS)


async def test_what_was_committed_before_leading_ended_is_acknowledged(
    host: Any, partition: Partition
) -> None:
    waiting = await begin(host, (partition, 1))
    for member in (B, C):
        fetch(partition, member, 1)
    partition.end()
    await waiting
    assert ack_error(partition, 1, -1) is ErrorCode.NONE

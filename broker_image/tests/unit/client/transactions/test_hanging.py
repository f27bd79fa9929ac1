from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.hanging import (
    OpenTransaction,
    find_hanging,
    open_transactions,
    owners,
    write_abort,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    WriteTxnMarkersRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.transactions.fake_transactions import (
    FakeTransactions,
    described,
    producing,
)

pytestmark = pytest.mark.asyncio
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}).running() as running:
        yield running


@pytest_asyncio.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    async with Client(broker.bootstrap, timeout_ms=2_000) as made:
        yield made


async def test_what_is_open_at_partitions_comes_from_their_leaders(
    broker: FakeBroker, client: Client
) -> None:
    fake = FakeTransactions(broker)
    fake.producers = {0: [producing(9, 50), producing(8, -1), producing(7, 20)]}
    fake.codes[DescribeProducersRequest] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert await open_transactions(client, [T1, T0]) == [
        OpenTransaction(T0, 7, 3, 5, 20, 0),
        OpenTransaction(T0, 9, 3, 5, 50, 0),
    ]


async def test_a_coordinator_owns_what_it_lists_with_the_partition(
    broker: FakeBroker, client: Client
) -> None:
    fake = FakeTransactions(broker)
    fake.ids = {"a": described("a", 7, "Ongoing", 0), "b": described("b", 8, "PrepareCommit", 1)}
    fake.producers = {
        0: [producing(7, 20), producing(8, 30), producing(9, 40)],
        1: [producing(8, 5)],
    }
    found = await open_transactions(client, [T0, T1])
    assert {
        (key.partition, key.producer_id): name
        for key, name in (await owners(client, found)).items()
    } == {(T0, 7): "a", (T1, 8): "b"}
    hanging = await find_hanging(client, [T0, T1], idle_since_ms=0)
    assert [(each.partition, each.producer_id) for each in hanging] == [(T0, 8), (T0, 9)]


async def test_an_id_that_expires_meanwhile_owns_nothing(
    broker: FakeBroker, client: Client
) -> None:
    fake = FakeTransactions(broker)
    fake.ids["a"] = described("a", 7, "Ongoing", 0)
    fake.producers[0] = [producing(7, 20)]
    fake.codes[DescribeTransactionsRequest] = [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND]
    assert len(await find_hanging(client, [T0], idle_since_ms=0)) == 1
    fake.codes[DescribeTransactionsRequest] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await find_hanging(client, [T0], idle_since_ms=0)


async def test_who_wrote_lately_or_has_ended_meanwhile_does_not_hang(
    broker: FakeBroker, client: Client
) -> None:
    fake = FakeTransactions(broker)
    fake.producers[0] = [producing(7, 20, last_ms=101), producing(8, 30, last_ms=100)]
    (found,) = await find_hanging(client, [T0], idle_since_ms=100)
    assert found.producer_id == 8
    answers = iter([fake.producers[0], [producing(8, 60)]])

    def describe(request: DescribeProducersRequest):
        fake.producers[0] = next(answers)
        return fake.describe_producers(request)

    broker.answers[DescribeProducersRequest] = describe
    assert await find_hanging(client, [T0], idle_since_ms=100) == []


@pytest.mark.parametrize("known, sent", [(5, 5), (-1, 0)])
async def test_an_abort_marker_has_the_epochs_that_the_leader_knows(
    broker: FakeBroker, client: Client, known: int, sent: int
) -> None:
    fake = FakeTransactions(broker)
    fake.codes[WriteTxnMarkersRequest] = [ErrorCode.NOT_ENOUGH_REPLICAS]
    await write_abort(client, OpenTransaction(T1, 7, 3, known, 20, 0))
    request = broker.of(WriteTxnMarkersRequest)[1]
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, sent)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1])]


async def test_an_abort_marker_for_a_producer_that_went_on_is_refused(
    broker: FakeBroker, client: Client
) -> None:
    fake = FakeTransactions(broker)
    fake.codes[WriteTxnMarkersRequest] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(KafkaError, match="t-1, transaction from offset 20: INVALID_PRODUCER_EPOCH"):
        await write_abort(client, OpenTransaction(T1, 7, 3, 5, 20, 0))

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError, NotSupported
from logfleet.client.offsets import TopicPartition
from logfleet.client.transactions.admin import (
    TransactionDescription,
    TransactionListing,
    Transactions,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker
from broker_image.tests.unit.client.transactions.fake_transactions import (
    STARTED_MS,
    FakeTransactions,
    described,
)

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}).running() as running:
        yield running


@pytest_asyncio.fixture
async def transactions(broker: FakeBroker) -> AsyncIterator[Transactions]:
    async with Client(broker.bootstrap, timeout_ms=2_000) as client:
        yield Transactions(client)


async def test_ids_of_all_brokers_are_listed_by_name_once_they_are_loaded(
    broker: FakeBroker, transactions: Transactions
) -> None:
    fake = FakeTransactions(broker)
    fake.ids = {"b": described("b", 2, "Empty"), "a": described("a", 1, "Ongoing", 0)}
    fake.codes[ListTransactionsRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert await transactions.list() == [
        TransactionListing("a", 1, 1, "Ongoing"),
        TransactionListing("b", 1, 2, "Empty"),
    ]
    assert len(broker.of(ListTransactionsRequest)) == 2


async def test_filters_are_the_brokers_work(broker: FakeBroker, transactions: Transactions) -> None:
    FakeTransactions(broker)
    await transactions.list(
        states=["Ongoing"], producer_ids=[7], longer_than_ms=1_500, pattern="a.*"
    )
    await transactions.list()
    some, everything = broker.of(ListTransactionsRequest)
    assert (some.state_filters, some.producer_id_filters) == (["Ongoing"], [7])
    assert (some.duration_filter, some.transactional_id_pattern) == (1_500, "a.*")
    assert (everything.state_filters, everything.producer_id_filters) == ([], [])
    assert (everything.duration_filter, everything.transactional_id_pattern) == (-1, None)


async def test_a_filter_that_a_broker_lacks_is_not_left_out(
    broker: FakeBroker, transactions: Transactions
) -> None:
    FakeTransactions(broker)

    def older(request: ApiVersionsRequest):
        response = broker.api_versions(request)
        for row in response.api_keys:
            row.max_version = 0 if row.api_key == 66 else row.max_version
        return response

    broker.answers[ApiVersionsRequest] = older
    assert await transactions.list() == []
    with pytest.raises(NotSupported):
        await transactions.list(pattern="a.*")


async def test_a_pattern_that_is_none_is_refused(
    broker: FakeBroker, transactions: Transactions
) -> None:
    fake = FakeTransactions(broker)
    fake.codes[ListTransactionsRequest] = [ErrorCode.INVALID_REGULAR_EXPRESSION]
    with pytest.raises(KafkaError, match="INVALID_REGULAR_EXPRESSION"):
        await transactions.list(pattern="[")


async def test_an_id_is_described_by_its_coordinator_wherever_that_moves(
    broker: FakeBroker, transactions: Transactions
) -> None:
    fake = FakeTransactions(broker)
    fake.ids["a"] = described("a", 7, "Ongoing", 0, 1)
    fake.codes[DescribeTransactionsRequest] = [ErrorCode.NOT_COORDINATOR]
    partitions = (TopicPartition("t", 0), TopicPartition("t", 1))
    assert await transactions.describe("a") == TransactionDescription(
        "a", 1, "Ongoing", 7, 3, 60_000, STARTED_MS, partitions
    )
    asked = broker.of(FindCoordinatorRequest)
    assert [(row.key_type, row.coordinator_keys) for row in asked] == [(1, ["a"])] * 2


async def test_an_id_that_is_not_there_is_an_error(
    broker: FakeBroker, transactions: Transactions
) -> None:
    FakeTransactions(broker)
    with pytest.raises(KafkaError, match="transactional id a: TRANSACTIONAL_ID_NOT_FOUND"):
        await transactions.describe("a")


async def test_an_abort_fences_the_producer_and_waits_until_it_is_done(
    broker: FakeBroker, transactions: Transactions
) -> None:
    fake = FakeTransactions(broker)
    fake.codes[InitProducerIdRequest] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    await transactions.abort("a")
    asked = broker.of(InitProducerIdRequest)
    assert [(row.transactional_id, row.producer_id) for row in asked] == [("a", -1)] * 3

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logfleet.log.validation import Appended
from logfleet.log.verification import Guard
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.node.transactions.enlisting import Enlisting, ProducerBatch
from logfleet.node.transactions.verifier import Client
from logfleet.records.batch import parse_header
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode

from broker_image.tests.unit.node.handlers.conftest import Host
from broker_image.tests.unit.node.transactions.verifier_rig import Rig

NOW = 1_700_000_000_000
PRODUCER, EPOCH = 7, 3
TV1, TV2 = Client(adds=False, aborts=True), Client(adds=True, aborts=True)
OFFSETS_V = 5


class Enlisters(Rig):
    """A coordinator on this broker, and the one that enlists by it."""

    def __init__(self, host: Host, **config: Any) -> None:
        super().__init__(**config)
        self.know_broker(1, 1)
        self.lead(1)
        self.enlisting = Enlisting(self.verifier, lambda: 0)
        self.partition = host.host()

    def at_the_coordinator(self, act: Any) -> None:
        self.coordinators.before_answer = act

    async def enlist(self, *batches: ProducerBatch, client: Client = TV2) -> list[Any]:
        return await self.enlisting.enlist("a", batches or (self.batch(),), client)

    def batch(self, sequence: int = 0, epoch: int = EPOCH) -> ProducerBatch:
        return ProducerBatch(self.partition, parse_header(records(sequence, epoch)))

    def refusal(self, batch: ProducerBatch, guard: Guard | None) -> ErrorCode | None:
        return self.enlisting.refusal(batch, guard, TV2)

    async def enlist_offsets(self, version: int = OFFSETS_V) -> ErrorCode:
        return await self.enlisting.enlist_offsets("a", (PRODUCER, EPOCH), self.partition, version)


def records(sequence: int = 0, epoch: int = EPOCH) -> bytearray:
    stamp = ProducerStamp(PRODUCER, epoch, sequence, transactional=True)
    return build_batch([Record(None, b"v", NOW)], producer=stamp)


def append(partition: LeaderPartition, sequence: int = 0, epoch: int = EPOCH) -> None:
    assert isinstance(partition.append(records(sequence, epoch), NOW), Appended)


def marked(partition: LeaderPartition, epoch: int = EPOCH, version: int = 1) -> None:
    """A marker is appended to a partition without records of the producer."""
    partition.guards.marked(PRODUCER, epoch, version)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def rig(host: Host) -> Enlisters:
    return Enlisters(host)


def test_only_the_first_batch_of_a_transaction_is_asked_about(rig: Enlisters) -> None:
    assert rig.enlisting.is_needed(rig.batch(), TV2)
    append(rig.partition)
    assert not rig.enlisting.is_needed(rig.batch(1), TV2)
    assert rig.refusal(rig.batch(1), None) is None
    assert rig.enlisting.is_needed(rig.batch(0, EPOCH + 1), TV2)


def test_what_the_log_answers_by_itself_is_not_asked_about(rig: Enlisters) -> None:
    plain = build_batch([Record(None, b"v", NOW)], producer=ProducerStamp(PRODUCER, EPOCH, 0))
    rig.partition.append(plain, NOW)
    assert not rig.enlisting.is_needed(rig.batch(0), TV2), "it was appended before"
    assert not rig.enlisting.is_needed(rig.batch(1, EPOCH - 1), TV2), "its epoch is over"
    assert rig.enlisting.is_needed(rig.batch(1), TV2)
    assert rig.enlisting.is_needed(rig.batch(5), TV2)


def test_without_verification_only_newer_clients_are_asked_about(host: Host) -> None:
    rig = Enlisters(host, static={"transaction.partition.verification.enable": "false"})
    assert not rig.enlisting.is_needed(rig.batch(), TV1)
    assert rig.enlisting.refusal(rig.batch(), None, TV1) is None
    assert rig.enlisting.is_needed(rig.batch(), TV2)


@pytest.mark.asyncio
async def test_all_partitions_of_a_producer_are_one_question(rig: Enlisters, host: Host) -> None:
    batches = [rig.batch(), ProducerBatch(host.host("other", 4), rig.batch().header)]
    guards = await rig.enlist(*batches)
    (asked,) = rig.coordinators.asked
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [
        ("topic", [0]),
        ("other", [4]),
    ]
    for batch, guard in zip(batches, guards, strict=True):
        assert rig.refusal(batch, guard) is None
    assert (asked.producer_id, asked.producer_epoch) == (PRODUCER, EPOCH)


@pytest.mark.asyncio
async def test_a_batch_whose_transaction_ended_while_it_was_asked_about_is_too_late(
    rig: Enlisters,
) -> None:
    rig.at_the_coordinator(lambda: marked(rig.partition))
    (guard,) = await rig.enlist()
    assert rig.refusal(rig.batch(), guard) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.asyncio
async def test_a_late_answer_does_not_serve_the_next_transaction_of_the_same_epoch(
    rig: Enlisters,
) -> None:
    (late,) = await rig.enlist()
    marked(rig.partition)
    (guard,) = await rig.enlist()
    assert rig.refusal(rig.batch(), late) is ErrorCode.INVALID_TXN_STATE
    assert rig.refusal(rig.batch(), guard) is None


@pytest.mark.asyncio
async def test_the_marker_of_the_last_transaction_may_come_while_the_next_is_asked_about(
    rig: Enlisters,
) -> None:
    """TV2: it has the epoch that the next one has."""
    rig.at_the_coordinator(lambda: marked(rig.partition, version=2))
    (guard,) = await rig.enlist()
    assert rig.refusal(rig.batch(), guard) is None


@pytest.mark.asyncio
async def test_two_requests_begin_one_transaction_together(rig: Enlisters) -> None:
    """The second finds the transaction open, whatever became of its guard."""
    first, second = await asyncio.gather(rig.enlist(rig.batch(0)), rig.enlist(rig.batch(1)))
    assert first == second
    append(rig.partition)
    rig.partition.guards.appended(rig.batch().header)
    assert rig.refusal(rig.batch(1), second[0]) is None


@pytest.mark.asyncio
async def test_the_second_batch_does_not_overtake_the_first_which_was_refused_for_now(
    rig: Enlisters,
) -> None:
    append(rig.partition, 0, EPOCH - 1)
    rig.coordinators.errors = [ErrorCode.NOT_COORDINATOR]
    assert await rig.enlist(rig.batch(0)) == [ErrorCode.NOT_COORDINATOR]
    (guard,) = await rig.enlist(rig.batch(1))
    assert rig.refusal(rig.batch(1), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    (guard,) = await rig.enlist(rig.batch(0))
    assert rig.refusal(rig.batch(0), guard) is None


@pytest.mark.parametrize(
    "error, stays",
    [
        (ErrorCode.NONE, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, False),
        (ErrorCode.PRODUCER_FENCED, False),
    ],
)
@pytest.mark.asyncio
async def test_only_a_batch_that_comes_again_leaves_a_guard(rig: Enlisters, error, stays) -> None:
    rig.coordinators.error = error
    await rig.enlist()
    assert len(rig.partition.guards) == int(stays)


@pytest.mark.asyncio
async def test_a_question_whose_asker_has_gone_is_counted_as_ended(rig: Enlisters) -> None:
    asked = asyncio.ensure_future(rig.enlist())
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    rig.coordinators.error = ErrorCode.TRANSACTION_ABORTABLE
    await rig.enlist()
    assert not len(rig.partition.guards)


@pytest.mark.asyncio
async def test_offsets_may_be_appended_once_their_partition_is_in_the_transaction(
    rig: Enlisters,
) -> None:
    assert await rig.enlist_offsets() is ErrorCode.NONE
    (asked,) = rig.coordinators.asked
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == (
        "a",
        PRODUCER,
        EPOCH,
    )
    assert not asked.verify_only
    append(rig.partition)
    assert await rig.enlist_offsets() is ErrorCode.NONE
    assert len(rig.coordinators.asked) == 1, "it is open"


@pytest.mark.parametrize("version, verifies", [(0, True), (4, True), (5, False), (6, False)])
@pytest.mark.asyncio
async def test_since_version_5_offsets_add_their_partition(
    rig: Enlisters, version, verifies
) -> None:
    await rig.enlist_offsets(version)
    assert rig.coordinators.asked[0].verify_only == verifies


@pytest.mark.parametrize(
    "error, version, wanted",
    [
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, 5, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
@pytest.mark.asyncio
async def test_a_commit_of_offsets_gets_the_errors_that_its_client_expects(
    rig: Enlisters, error, version, wanted
) -> None:
    rig.coordinators.error = error
    assert await rig.enlist_offsets(version) is wanted
    assert len(rig.coordinators.asked) == 1, "nothing is tried again"


@pytest.mark.asyncio
async def test_offsets_of_an_epoch_that_is_over_are_refused_at_once(rig: Enlisters) -> None:
    append(rig.partition, 0, EPOCH + 1)
    assert await rig.enlist_offsets() is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not rig.coordinators.asked


@pytest.mark.asyncio
async def test_offsets_whose_transaction_ended_meanwhile_are_too_late(rig: Enlisters) -> None:
    rig.at_the_coordinator(lambda: marked(rig.partition))
    assert await rig.enlist_offsets() is ErrorCode.INVALID_TXN_STATE


@pytest.mark.asyncio
async def test_offsets_are_not_appended_by_a_coordinator_that_was_replaced(
    rig: Enlisters,
) -> None:
    rig.at_the_coordinator(rig.partition.end)
    assert await rig.enlist_offsets() is ErrorCode.NOT_COORDINATOR


@pytest.mark.asyncio
async def test_without_verification_offsets_of_older_clients_are_not_asked_about(
    host: Host,
) -> None:
    rig = Enlisters(host, static={"transaction.partition.verification.enable": "false"})
    assert await rig.enlist_offsets(4) is ErrorCode.NONE
    assert not rig.coordinators.asked

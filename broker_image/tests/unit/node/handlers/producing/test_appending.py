"""The table of rules that a partition has for batches, and the fast test of `append` for them."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.metadata.image import ClusterImage, Features
from logfleet.node.handlers.producing.appending import (
    ADMIN_CLIENT_ID,
    Attempt,
    Sender,
    TransactionalSender,
    append,
    explain,
)
from logfleet.records.batch import TRANSACTIONAL_BIT, write_crc
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire.errors import ErrorCode

NOW = 1_700_000_000_000
APPENDED = object()


def batch(
    codec: Codec = Codec.NONE,
    *,
    is_transactional: bool = False,
    producer: ProducerStamp | None = None,
) -> bytearray:
    made = build_batch([Record(b"k", b"v" * 20, NOW)], codec=codec, producer=producer)
    if is_transactional:
        made[22] |= TRANSACTIONAL_BIT
        write_crc(made)
    return made


def partition(*, is_internal: bool) -> Any:
    return SimpleNamespace(
        is_current=True,
        is_internal=is_internal,
        has_followers=False,
        append=lambda _records, _now_ms: APPENDED,
    )


def rooms(level: int) -> Any:
    return SimpleNamespace(
        disks=SimpleNamespace(disk_space=SimpleNamespace(full=())),
        clock=SimpleNamespace(now_ms=lambda: NOW),
        metadata=SimpleNamespace(image=ClusterImage(features=Features(level, 5))),
    )


ROOMS = st.sampled_from([rooms(TRANSACTIONS - 1), rooms(TRANSACTIONS)])
SENDERS = st.builds(
    lambda kind, *given: kind(*given),
    st.sampled_from([Sender, TransactionalSender]),
    st.integers(3, 13),
    st.sampled_from([None, "client", ADMIN_CLIENT_ID]),
    st.sampled_from([-1, 0, 1, 2, -2]),
)
PRODUCER = ProducerStamp(7, 0, 0)
BATCHES = st.builds(
    batch,
    st.sampled_from(Codec),
    is_transactional=st.booleans(),
    producer=st.sampled_from([None, PRODUCER]),
)
RECORDS = BATCHES | st.binary(max_size=90).map(bytearray) | BATCHES.map(lambda made: made[:70])


@given(ROOMS, SENDERS, st.builds(partition, is_internal=st.booleans()), RECORDS)
def test_the_fast_test_refuses_what_the_table_refuses_and_nothing_else(
    rooms: Any, sender: Sender, partition: Any, records: bytearray
) -> None:
    expected = explain(Attempt(partition, sender, records, rooms.metadata.image))
    result = append(rooms, partition, sender, records)
    assert result == (APPENDED if expected is None else expected)


@given(ROOMS, SENDERS, st.builds(partition, is_internal=st.booleans()), BATCHES)
def test_a_malformed_batch_gets_that_error_instead_of_any_other(
    rooms: Any, sender: Sender, partition: Any, whole: bytearray
) -> None:
    if explain(Attempt(partition, sender, whole, rooms.metadata.image)) is None:
        return
    refusal: Any = append(rooms, partition, sender, whole * 2)
    assert (refusal.error, refusal.is_before_log) == (ErrorCode.INVALID_RECORD, True)


@pytest.mark.parametrize("version", [10, 13])
def test_a_transactional_batch_needs_a_request_with_a_transactional_id(version: int) -> None:
    served, made = rooms(TRANSACTIONS), batch(is_transactional=True, producer=PRODUCER)
    to: Any = partition(is_internal=False)
    refusal: Any = append(served, to, Sender(version, "c", -1), made)
    assert refusal.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert append(served, to, TransactionalSender(version, "c", -1), made) == APPENDED

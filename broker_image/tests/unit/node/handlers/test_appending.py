"""The table of rules that a partition has for batches, and the fast test of `append` for them."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from logfleet.node.handlers.appending import ADMIN_CLIENT_ID, Attempt, Sender, append, explain
from logfleet.records.batch import TRANSACTIONAL_BIT, write_crc
from logfleet.records.compression import Codec
from logfleet.records.record import Record, build_batch
from logfleet.wire.errors import ErrorCode

NOW = 1_700_000_000_000
APPENDED = object()


def batch(codec: Codec = Codec.NONE, *, is_transactional: bool = False) -> bytearray:
    made = build_batch([Record(b"k", b"v" * 20, NOW)], codec=codec)
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


ROOMS: Any = SimpleNamespace(
    disks=SimpleNamespace(disk_space=SimpleNamespace(full=())),
    clock=SimpleNamespace(now_ms=lambda: NOW),
)
SENDERS = st.builds(
    Sender,
    st.integers(3, 13),
    st.sampled_from([None, "client", ADMIN_CLIENT_ID]),
    st.sampled_from([-1, 0, 1, 2, -2]),
)
BATCHES = st.builds(batch, st.sampled_from(Codec), is_transactional=st.booleans())
RECORDS = BATCHES | st.binary(max_size=90).map(bytearray) | BATCHES.map(lambda made: made[:70])


@given(SENDERS, st.builds(partition, is_internal=st.booleans()), RECORDS)
def test_the_fast_test_refuses_what_the_table_refuses_and_nothing_else(
    sender: Sender, partition: Any, records: bytearray
) -> None:
    expected = explain(Attempt(partition, sender, records))
    result = append(ROOMS, partition, sender, records)
    assert result == (APPENDED if expected is None else expected)


@given(SENDERS, st.builds(partition, is_internal=st.booleans()), BATCHES)
def test_a_malformed_batch_gets_that_error_instead_of_any_other(
    sender: Sender, partition: Any, whole: bytearray
) -> None:
    if explain(Attempt(partition, sender, whole)) is None:
        return
    refusal: Any = append(ROOMS, partition, sender, whole * 2)
    assert (refusal.error, refusal.is_before_log) == (ErrorCode.INVALID_RECORD, True)

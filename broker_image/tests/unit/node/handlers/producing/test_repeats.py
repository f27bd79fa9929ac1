"""Requests that are recognised by their bytes get the same answers as decoded ones."""

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logfleet.log.config import LogConfig
from logfleet.log.directories import disk
from logfleet.metadata.kinds.cluster import CONTROLLER, ControllerValue
from logfleet.net.peer import REPEATS_MAX
from logfleet.node.dispatch import Dispatcher
from logfleet.node.handlers.producing.produce import HANDLERS
from logfleet.records.batch import TRANSACTIONAL_BIT, TimestampType, write_crc
from logfleet.records.compression import Codec
from logfleet.records.record import ProducerStamp
from logfleet.wire.errors import ErrorCode
from logfleet.wire.frame import SIZE_BYTES, decode_response
from logfleet.wire.messages import ProduceRequest

from broker_image.tests.unit.node.handlers.producing.produce_rig import (
    API,
    batch,
    frame,
    row,
    stored,
)
from broker_image.tests.unit.node.partitions.replicas_rig import A, B, replicated, shrink

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_second_request_of_a_kind_is_answered_as_the_first(sides, version) -> None:
    for side in sides:
        side.host.host("topic", 0)
    for number in range(4):
        sent = frame(version, batch(b"x" * 50 * number), number=number)
        ours, others = (side.ask(sent) for side in sides)
        assert ours == others
        assert row(ours, version, number).base_offset == number
    assert stored(sides[0]) == stored(sides[1])
    assert sides[0].dispatch.stats["Produce"].requests == 4
    assert sides[0].dispatch.stats["Produce"].at_once.total > 0


@pytest.mark.parametrize("first", [True, False])
def test_a_topic_without_partitions_is_answered_too(sides, first) -> None:
    """Beside the only partition of the request: its empty row is part of every answer."""
    data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(batch()))
    rows = [ProduceRequest.TopicProduceData(name="topic", partition_data=[data])]
    rows.insert(0 if first else 1, ProduceRequest.TopicProduceData(name="empty"))
    for side in sides:
        side.host.host("topic", 0)
    for _ in range(2):
        ours, others = (side.ask(frame(9, None, topic_data=rows)) for side in sides)
        assert ours == others
        assert isinstance(ours, bytes)
        _, body = decode_response(API, 9, ours[SIZE_BYTES:])
        named = [each.name for each in body.responses]  # type: ignore[attr-defined]
        assert named == [each.name for each in rows]


@pytest.mark.parametrize("version", range(9, 14))
def test_it_is_not_decoded(sides, version, monkeypatch) -> None:
    side, _ = sides
    side.host.host("topic", 0)
    side.ask(frame(version, batch()))
    side.refuse_to_decode(monkeypatch)
    # a length of another number of bytes
    assert row(side.ask(frame(version, batch(b"x" * 5000))), version).base_offset == 1


def test_the_next_revision_of_the_image_ends_it_and_is_learned_by_the_second_request(
    sides, monkeypatch
) -> None:
    """What `produce` decides by the image, it decides again."""
    side, _ = sides
    side.host.host("topic", 0)
    side.host.host("other", 0)
    for topic in ("topic", "other"):
        side.ask(frame(9, batch(), topic=topic))
    assert side.peer.repeats
    side.host.put(CONTROLLER.prefix, ControllerValue(1, "i"))
    decoded = []
    handler = HANDLERS[ProduceRequest]

    def counted(*given: Any) -> Any:
        decoded.append(given)
        return handler(*given)

    monkeypatch.setitem(HANDLERS, ProduceRequest, counted)
    side.dispatch = Dispatcher(side.host, HANDLERS)
    side.host.requests = side.dispatch.requests
    for number in range(1, 5):
        assert row(side.ask(frame(9, batch())), 9).base_offset == number
        assert len(decoded) == min(number, 2)
    assert len(side.peer.repeats) == 1, "those of the revision before are gone"


def test_no_template_is_made_while_each_request_meets_another_revision(sides) -> None:
    side, _ = sides
    side.host.host("topic", 0)
    for number in range(5):
        side.host.put(CONTROLLER.prefix, ControllerValue(number, "i"))
        assert row(side.ask(frame(9, batch())), 9).base_offset == number
        assert not side.peer.repeats


@pytest.mark.asyncio
async def test_a_request_that_followers_fail_is_answered_as_a_decoded_one(sides) -> None:
    """The first one waits, and times out; then too few are in sync."""
    late, few = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS
    answers: list[list[Any]] = []
    for side in sides:
        partition = side.host.host("topic", 0, replicas_state=replicated(isr=(A, B)))
        answers.append([])
        for _ in range(2):
            given = side.ask(frame(9, batch(), timeout_ms=1))
            answers[-1].append(await side.link.wait(given))
        shrink(partition, A)
        answers[-1].append(side.ask(frame(9, batch(), timeout_ms=1)))
    assert answers[0] == answers[1]
    rows = [row(each, 9) for each in answers[0]]
    assert [each.error_code for each in rows] == [late, late, few]
    assert [each.base_offset for each in rows] == [0, 1, -1]
    assert [each.log_start_offset for each in rows] == [0, 0, 0]


def test_it_is_known_by_partition_and_topic_of_the_same_length(sides, monkeypatch) -> None:
    side, _ = sides
    places = [("one", 0), ("one", 1), ("two", 0)]
    for place in places:
        side.host.host(*place)
        side.ask(frame(9, batch(), topic=place[0], index=place[1]))
    side.refuse_to_decode(monkeypatch)
    for topic, index in places:
        answer = row(side.ask(frame(9, batch(), topic=topic, index=index)), 9)
        assert (answer.index, answer.base_offset) == (index, 1)


def test_only_so_many_are_remembered(sides) -> None:
    side, _ = sides
    for index in range(REPEATS_MAX + 5):
        side.host.host("topic", index)
        side.ask(frame(9, batch(), index=index))
    assert len(side.peer.repeats) == REPEATS_MAX
    assert row(side.ask(frame(9, batch(), index=REPEATS_MAX + 4)), 9).base_offset == 1


@pytest.mark.parametrize("given", [{"acks": 0}, {"acks": 7}, {"transactional_id": "t"}])
def test_what_is_not_ordinary_is_not_remembered(sides, given) -> None:
    side, other = sides
    for each in sides:
        each.host.host("topic", 0)
    for _ in range(2):
        sent = frame(9, batch(), **given)
        assert side.ask(sent) == other.ask(sent)
    assert not side.peer.repeats


def length_of_more(sent: bytes) -> bytes:
    """The length of the records is too large."""
    at = sent.index(len(batch()).to_bytes(4, "big"))
    return sent[:at] + (len(batch()) + 9).to_bytes(4, "big") + sent[at + 4 :]


@pytest.mark.parametrize(
    "version,changed",
    [
        (7, length_of_more),
        (7, lambda sent: sent + b"more"),
        (7, lambda sent: b"\0\0\0\x08" + sent[4:]),  # the same bytes, of another version
        (9, lambda sent: sent[:-1] + b"\1\5\0"),  # an unknown tagged field
        (9, lambda sent: sent[:-1] + b"\1"),  # one that is missing
    ],
)
def test_what_differs_elsewhere_is_decoded(sides, version, changed) -> None:
    for side in sides:
        side.host.host("topic", 0)
        side.ask(frame(version, batch()))
    ours, others = (side.ask(changed(frame(version, batch()))) for side in sides)
    assert ours == others
    assert stored(sides[0]) == stored(sides[1])


def test_what_the_broker_knows_is_looked_up_each_time(sides) -> None:
    for each in sides:
        partition = each.host.host("topic", 0)
        each.host.know_topic("topic", {0: 1})
        each.ask(frame(9, batch()))
        each.host.partitions.remove(partition)
    ours, others = (each.ask(frame(9, batch())) for each in sides)
    assert ours == others
    assert row(ours, 9).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_configuration_of_the_moment_counts(sides) -> None:
    side, _ = sides
    side.host.host("topic", 0)
    side.ask(frame(9, batch()))
    side.host.partitions.get("topic", 0).log.config = LogConfig(max_message_bytes=10)
    assert row(side.ask(frame(9, batch())), 9).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_that_has_every_record_read_is_asked_for_each_time(sides) -> None:
    """Junk under a right checksum, small enough to be read on the loop."""
    junk = batch(b"v" * 100)
    junk[61:] = b"\xff" * (len(junk) - 61)
    write_crc(junk)
    side, _ = sides
    log = side.host.host("topic", 0).log
    assert row(side.ask(frame(9, junk)), 9).error_code == 0
    log.config = LogConfig(validates_records=True)
    assert row(side.ask(frame(9, batch())), 9).error_code == 0
    assert row(side.ask(frame(9, junk)), 9).error_code == ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_gap_in_the_sequence_is_one_also_where_the_broker_sets_the_time(sides, codec) -> None:
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    answers = []
    for sequence in (0, 1, 5):
        stamp = ProducerStamp(7, 0, sequence)
        sent = frame(9, batch(b"v" * 100, producer=stamp, codec=codec))
        for side in sides:
            if sequence == 0:
                side.host.host("topic", 0)
            side.host.partitions.get("topic", 0).log.config = config
        ours, others = (side.ask(sent) for side in sides)
        assert ours == others
        answers.append(row(ours, 9).error_code)
    assert answers == [0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_while_a_client_has_a_quota_all_are_decoded(sides, monkeypatch) -> None:
    side, _ = sides
    side.host.host("topic", 0)
    side.ask(frame(9, batch()))
    side.dispatch.quotas = object()
    side.refuse_to_decode(monkeypatch)
    with pytest.raises(AssertionError, match="it was decoded"):
        side.ask(frame(9, batch()))


@pytest.mark.parametrize("is_refused", [True, False])
def test_while_a_disk_is_full_it_is_asked_whether_the_log_lies_there(
    sides, is_refused, monkeypatch
) -> None:
    for side in sides:
        side.host.host("topic", 0)
        side.ask(frame(9, batch()))
        monkeypatch.setattr(side.host.disk_space, "full", {"a directory"})
        monkeypatch.setattr(side.host.disk_space, "refuses", lambda _log: is_refused)
    ours, others = (side.ask(frame(9, batch())) for side in sides)
    assert ours == others
    error = ErrorCode.KAFKA_STORAGE_ERROR if is_refused else ErrorCode.NONE
    assert row(ours, 9).error_code == error


def test_what_may_have_to_wait_for_the_disk_is_decoded(sides, monkeypatch) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0)
    side.ask(frame(9, batch()))
    partition.log.config = LogConfig(flush_messages=1)
    assert not partition.appends_at_once
    partition.log.config = LogConfig()
    assert partition.appends_at_once
    partition.ends.own_end_offset -= 1
    assert not partition.appends_at_once
    side.refuse_to_decode(monkeypatch)
    with pytest.raises(AssertionError, match="it was decoded"):
        side.ask(frame(9, batch()))


@pytest.mark.asyncio
async def test_the_write_with_which_a_disk_becomes_slow_is_answered_as_any(
    sides, monkeypatch
) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0)
    side.ask(frame(9, batch()))
    side.refuse_to_decode(monkeypatch)
    monkeypatch.setattr(disk, "perf_counter", count(0, 2 * disk.SLOW_S).__next__)
    answer = row(side.ask(frame(9, batch())), 9)
    assert partition.log.disk.is_held_up
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)


def test_a_disk_that_fails_is_reported_once_and_not_tried_again(sides, monkeypatch) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0)
    side.ask(frame(9, batch()))
    tried = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise OSError(5, "I/O error")

    monkeypatch.setattr(type(partition), "append", fail)
    answer = row(side.ask(frame(9, batch())), 9)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert len(tried) == len(side.host.failed) == 1
    assert side.dispatch.stats["Produce"].errors == {ErrorCode.KAFKA_STORAGE_ERROR: 1}


def test_a_bug_closes_the_connection_and_is_counted(sides, monkeypatch) -> None:
    side, _ = sides
    partition = side.host.host("topic", 0)
    side.ask(frame(9, batch()))
    monkeypatch.setattr(type(partition), "append", lambda *_: 1 / 0)
    assert side.ask(frame(9, batch())) == "Produce failed"
    assert side.dispatch.stats["Produce"].failures == 1


def transactional(records: bytearray) -> bytearray:
    records[22] |= TRANSACTIONAL_BIT
    write_crc(records)
    return records


def damaged(records: bytearray) -> bytearray:
    records[-1] ^= 1
    return records


BATCHES = st.one_of(
    st.builds(batch, st.binary(max_size=300)),
    st.builds(batch, st.just(b"z" * 400), codec=st.sampled_from(list(Codec))),
    st.builds(
        lambda sequence, epoch: batch(b"p", producer=ProducerStamp(7, epoch, sequence)),
        st.integers(0, 3),
        st.integers(0, 1),
    ),
    st.builds(lambda: transactional(batch())),
    st.builds(lambda: damaged(batch())),
    st.just(b""),
    st.binary(max_size=90),
)


@st.composite
def frames(draw: st.DrawFn, version: int) -> bytes:
    """Mostly a producer's requests; sometimes bytes are changed, missing or added."""
    sent = bytearray(frame(version, draw(BATCHES), number=draw(st.integers(0, 2**31 - 1))))
    change = draw(st.sampled_from(["none"] * 6 + ["byte", "cut", "more"]))
    if change == "byte":
        # the version stays: of others the codec has its own tests
        sent[draw(st.integers(4, len(sent) - 1))] = draw(st.integers(0, 255))
    elif change == "cut":
        del sent[draw(st.integers(8, len(sent) - 1)) :]
    elif change == "more":
        sent += draw(st.binary(min_size=1, max_size=5))
    return bytes(sent)


@pytest.mark.parametrize("version", [7, 8, 9, 12, 13])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_sent_is_answered_as_if_it_were_decoded(sides, version, data) -> None:
    kind = data.draw(st.sampled_from(TimestampType))
    for side in sides:
        if side.host.partitions.get("topic", 0) is None:
            side.host.host("topic", 0)
        side.host.partitions.get("topic", 0).log.config = LogConfig(message_timestamp_type=kind)
        side.connect()
    for sent in data.draw(st.lists(frames(version), min_size=2, max_size=8)):
        answers = []
        for side in sides:
            answer: Any = side.ask(sent)
            if not isinstance(answer, bytes | str | None):  # it needs a thread
                answer.close()
                answer = "later"
            answers.append(answer)
        assert answers[0] == answers[1]
    assert stored(sides[0]) == stored(sides[1])


class RunOut:
    """A lease whose deadline has passed."""

    id, ttl_s, deadline_s = 1, 3, 0.0

    async def lost(self) -> None: ...

    async def revoke(self) -> None: ...


def test_neither_is_acknowledged_once_the_lease_has_run_out(sides) -> None:
    for side in sides:
        side.host.host("topic", 0)
        side.ask(frame(9, batch()))
        side.dispatch.lease = RunOut()
        assert "lease" in side.ask(frame(9, batch()))

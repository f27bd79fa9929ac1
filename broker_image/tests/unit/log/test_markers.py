import pytest
from logfleet.log.markers import MarkerRun, refuse_marker
from logfleet.log.names import TopicPartition
from logfleet.log.producers.states import ProducerStates
from logfleet.log.validation import Appended
from logfleet.records.batch import NO_TIMESTAMP, TimestampType, crc_matches, parse_header
from logfleet.records.control import Marker, read_marker
from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.types import LeaderEpoch
from logfleet.wire.errors import ErrorCode

EPOCH = LeaderEpoch(5)
NOW = 1_700_000_000_000
PARTITION = TopicPartition("t", 0)
MARKER_BYTES = 78


def marker(producer_id, epoch=0, coordinator_epoch=3):
    return Marker(producer_id, epoch, is_commit=True, coordinator_epoch=coordinator_epoch)


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_a_run_has_a_whole_batch_for_each_marker_at_the_offsets_that_follow(timestamp_type):
    run = MarkerRun(40, timestamp_type)
    added = [run.add(marker(producer_id), EPOCH, NOW) for producer_id in (1, 2)]
    assert added == [Appended(offset, offset, NO_TIMESTAMP) for offset in (40, 41)]
    batches = run.take()
    assert len(batches) == 2 * MARKER_BYTES
    for number, producer_id in enumerate((1, 2)):
        at = number * MARKER_BYTES
        header = parse_header(batches, at)
        assert (header.base_offset, header.leader_epoch) == (40 + number, EPOCH)
        assert header.timestamp_type is timestamp_type
        assert crc_matches(batches, header, at)
        assert read_marker(batches, at) == marker(producer_id)


def test_what_was_taken_is_not_taken_again_and_offsets_go_on_behind_it():
    run = MarkerRun(40, TimestampType.CREATE_TIME)
    run.add(marker(1), EPOCH, NOW)
    assert (run.has(1), run.has(2)) == (True, False)
    run.take()
    assert not run.has(1)
    assert run.add(marker(1), EPOCH, NOW).base_offset == 41
    assert parse_header(run.take()).base_offset == 41


@pytest.mark.parametrize("producer_id, epoch", [(-1, 0), (7, -1)])
def test_a_marker_that_names_no_producer_is_refused(producer_id, epoch):
    refused = refuse_marker(ProducerStates(), marker(producer_id, epoch), 1, PARTITION)
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_REQUEST
    assert "at least 0" in str(refused.message)


def test_a_marker_that_the_log_refuses_names_both_epochs():
    states = ProducerStates()
    written = build_batch([Record(None, b"v", NOW)], producer=ProducerStamp(7, 4, 0))
    states.update(parse_header(written), 0)
    refused = refuse_marker(states, marker(7, epoch=3), 1, PARTITION)
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert "t-0: epoch 3" in str(refused.message)
    assert "the log has epoch 4" in str(refused.message)
    assert refuse_marker(states, marker(7, epoch=4), 1, PARTITION) is None

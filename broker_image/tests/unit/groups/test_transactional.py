import pytest
from logfleet.groups.records import OffsetRecord
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from broker_image.tests.scenario.group_host import WALL_MS, GroupHost

ID = b"id of the topic."
Row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition


def commit(host: GroupHost, *rows: Row, version: int = 6, generation: int = -1) -> list[ErrorCode]:
    """Commit offsets of topic t in a transaction of producer 7; the errors of the partitions."""
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
        name="t", topic_id=ID, partitions=list(rows)
    )
    request = TxnOffsetCommitRequest(
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        generation_id_or_member_epoch=generation,
        topics=[topic],
    )
    turn = host.turn()
    host.coordinator.commit_in_transaction(turn, request, version, object())
    stamps = [write.producer for write in turn.writes]
    assert all(stamp is not None and (stamp.producer_id, stamp.epoch) == (7, 3) for stamp in stamps)
    host.run(turn)
    response = host.replies[-1][1]
    assert isinstance(response, TxnOffsetCommitResponse)
    assert [(each.name, each.topic_id) for each in response.topics] == [("t", ID)]
    return [ErrorCode(row.error_code) for row in response.topics[0].partitions]


def row(index: int = 0, metadata: str | None = "m") -> Row:
    return Row(
        partition_index=index,
        committed_offset=5,
        committed_leader_epoch=2,
        committed_metadata=metadata,
    )


def test_the_record_has_all_that_the_client_sent_and_the_time_and_the_topic_id():
    host = GroupHost(now_ms=9)
    assert commit(host, row(), row(1, None)) == [ErrorCode.NONE] * 2
    first, second = host.records()
    assert isinstance(first, OffsetRecord)
    assert isinstance(second, OffsetRecord)
    assert first.value is not None
    assert second.value is not None
    value = first.value
    assert (value.offset, value.leader_epoch, value.metadata) == (5, 2, "m")
    assert (value.commit_timestamp, value.expire_timestamp) == (WALL_MS + 9, -1)
    assert bytes(value.topic_id) == ID
    assert second.value.metadata == ""


def test_metadata_that_is_too_long_keeps_its_partition_out():
    host = GroupHost()
    too_long = "m" * (host.config.offset_metadata_max_bytes + 1)
    assert commit(host, row(0, too_long)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert host.log == []
    assert commit(host, row(0, too_long), row(1)) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.NONE,
    ]
    assert len(host.log) == 1


@pytest.mark.parametrize(
    "version,expected", [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_gone_cannot_commit(version, expected):
    host = GroupHost()
    assert commit(host, row(), row(1), version=version, generation=0) == [expected] * 2
    assert host.log == []


@pytest.mark.parametrize(
    "error,expected",
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_cannot_be_written_is_an_error_of_each_partition(error, expected):
    host = GroupHost(append_error=error)
    assert commit(host, row(), row(1)) == [expected] * 2
    assert not host.coordinator._table.staged


def test_it_is_answered_once_it_is_committed():
    host = GroupHost(holds_commits=True)
    with pytest.raises(IndexError):
        commit(host, row())
    host.commit()
    assert len(host.replies) == 1


def test_the_group_is_reported_once():
    host = GroupHost()
    commit(host, row())
    commit(host, row())
    assert [line.event for line in host.log_lines] == ["simple_group_created"]

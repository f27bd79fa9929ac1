import pytest
from logfleet.groups.classic.group import GroupState
from logfleet.groups.config import GroupConfig
from logfleet.groups.offsets import utf16_length
from logfleet.groups.records import OffsetRecord
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from broker_image.tests.scenario.group_host import WALL_MS, GroupHost
from broker_image.tests.scenario.group_script import Script

OLD_ID = b"old topic's id.."
NEW_ID = b"new topic's id.."


def commit(
    host: GroupHost, topic_id: bytes = bytes(16), version: int = 9, **fields: object
) -> OffsetCommitResponse:
    partition_fields = {
        name: fields.pop(name)
        for name in ("committed_metadata", "committed_leader_epoch", "partition_index")
        if name in fields
    }
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        committed_offset=5,
        **partition_fields,  # type: ignore[arg-type]
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        name="t", topic_id=topic_id, partitions=[partition]
    )
    request = OffsetCommitRequest(group_id="g", topics=[topic], **fields)  # type: ignore[arg-type]
    turn = host.turn()
    host.coordinator.commit(turn, request, version, object())
    host.run(turn)
    response = host.replies[-1][1]
    assert isinstance(response, OffsetCommitResponse)
    return response


def fetch(
    host: GroupHost, topics: list[tuple[str, bytes, list[int]]] | None
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    if topics is not None:
        request.topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=name, topic_id=topic_id, partition_indexes=numbers
            )
            for name, topic_id, numbers in topics
        ]
    turn = host.turn()
    host.coordinator.fetch(turn, request, object())
    host.run(turn)
    response = host.replies[-1][1]
    assert isinstance(response, OffsetFetchResponse.OffsetFetchResponseGroup)
    return response


def offset(host: GroupHost, topic_id: bytes) -> int:
    return fetch(host, [("t", topic_id, [0])]).topics[0].partitions[0].committed_offset


def error(response: OffsetCommitResponse) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_a_group_is_said_to_come_with_its_first_offset_and_not_with_a_commit_of_none():
    """MirrorMaker 2 commits an empty list each time that it has no offset to move."""
    host = GroupHost()
    turn = host.turn()
    host.coordinator.commit(turn, OffsetCommitRequest(group_id="g"), 9, object())
    host.run(turn)
    assert host.replies[-1][1] == OffsetCommitResponse()
    commit(host, committed_metadata="too long" * 1000)
    assert host.log_lines == []
    commit(host)
    commit(host)
    assert [note.event for note in host.log_lines] == ["simple_group_created"]


@pytest.mark.parametrize(
    "version,expected", [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_gone_cannot_commit(version, expected):
    host = GroupHost()
    response = commit(host, version=version, generation_id_or_member_epoch=3, member_id="m")
    assert error(response) is expected
    assert host.log == []


def test_all_that_was_committed_is_fetched():
    host = GroupHost()
    commit(host, committed_metadata="note", committed_leader_epoch=7, topic_id=OLD_ID)
    (topic,) = fetch(host, None).topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.committed_offset) == ("t", 0, 5)
    assert (partition.committed_leader_epoch, partition.metadata) == (7, "note")


def test_no_metadata_is_empty_metadata():
    host = GroupHost()
    commit(host, committed_metadata=None)
    assert fetch(host, None).topics[0].partitions[0].metadata == ""


def test_nothing_committed_is_no_error():
    (topic,) = fetch(GroupHost(), [("t", bytes(16), [0, 1])]).topics
    assert [
        (answer.partition_index, answer.committed_offset, answer.metadata, answer.error_code)
        for answer in topic.partitions
    ] == [(0, -1, "", 0), (1, -1, "", 0)]
    assert fetch(GroupHost(), None).topics == []


@pytest.mark.parametrize(
    "committed_for,asked_for,expected",
    [
        (OLD_ID, OLD_ID, 5),
        (OLD_ID, NEW_ID, -1),
        (OLD_ID, bytes(16), 5),
        (bytes(16), NEW_ID, 5),
    ],
    ids=["same topic", "created anew", "asked by name", "committed before ids"],
)
def test_an_offset_counts_for_the_topic_it_was_committed_for(committed_for, asked_for, expected):
    host = GroupHost()
    commit(host, topic_id=committed_for)
    assert offset(host, asked_for) == expected


def test_a_retention_time_of_its_own_is_stored():
    host = GroupHost()
    commit(host, retention_time_ms=1_000)
    commit(host)
    first, second = host.records()
    assert isinstance(first, OffsetRecord)
    assert isinstance(second, OffsetRecord)
    assert first.value is not None
    assert second.value is not None
    assert first.value.expire_timestamp == WALL_MS + 1_000
    assert second.value.expire_timestamp == -1
    assert second.value.commit_timestamp == WALL_MS


def test_a_retention_time_beyond_all_times_is_as_long_as_can_be():
    host = GroupHost()
    commit(host, retention_time_ms=2**63 - 1)
    (stored,) = host.records()
    assert isinstance(stored, OffsetRecord)
    assert stored.value is not None
    assert stored.value.expire_timestamp == 2**63 - 1


def test_a_fetch_that_may_be_taken_back_sends_the_client_to_look_again():
    host = GroupHost(holds_commits=True)
    turn = host.turn()
    request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    host.coordinator.fetch(turn, request, "fetch")
    host.run(turn)
    host.commit(ErrorCode.REQUEST_TIMED_OUT)
    response = host.replies[-1][1]
    assert isinstance(response, OffsetFetchResponse.OffsetFetchResponseGroup)
    assert response.error_code == ErrorCode.NOT_COORDINATOR


def test_metadata_is_measured_as_java_does():
    host = GroupHost(GroupConfig(offset_metadata_max_bytes=4))
    assert error(commit(host, committed_metadata="éééé")) is ErrorCode.NONE
    assert error(commit(host, committed_metadata="\U0001f600" * 2)) is ErrorCode.NONE
    too_large = commit(host, committed_metadata="\U0001f600" * 3)
    assert error(too_large) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert utf16_length("a\U0001f600") == 3


def delete(host: GroupHost, *topics: tuple[str, list[int]]) -> OffsetDeleteResponse:
    kind = OffsetDeleteRequest
    request = kind(
        group_id="g",
        topics=[
            kind.OffsetDeleteRequestTopic(
                name=name,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=n) for n in indexes],
            )
            for name, indexes in topics
        ],
    )
    turn = host.turn()
    host.coordinator.delete_offsets(turn, request, object())
    host.run(turn)
    response = host.replies[-1][1]
    assert isinstance(response, OffsetDeleteResponse)
    return response


def codes(response: OffsetDeleteResponse) -> list[list[int]]:
    return [[row.error_code for row in topic.partitions] for topic in response.topics]


def test_offsets_of_a_group_without_members_are_deleted_for_good():
    host = GroupHost()
    assert delete(host, ("t", [0])).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    for index in (0, 1):
        commit(host, partition_index=index)
    assert codes(delete(host, ("t", [0, 0, 7]), ("u", [0]))) == [[0, 0, 0], [0]]
    written = len(host.log)
    assert codes(delete(host, ("t", [0]))) == [[0]]
    assert len(host.log) == written
    left = fetch(host, None).topics
    assert [(topic.name, len(topic.partitions)) for topic in left] == [("t", 1)]
    host.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    failed = delete(host, ("t", [1]))
    assert (failed.error_code, failed.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_an_offset_that_is_only_staged_is_deleted_too():
    script = Script()
    script.run("stage 7 t-0=5 t-1=5")
    assert codes(delete(script.host, ("t", [0, 2]))) == [[0, 0]]
    script.host.end_transaction(7, is_commit=True)
    (topic,) = fetch(script.host, None).topics
    assert [row.partition_index for row in topic.partitions] == [1]
    assert script.host.records()[-1] == OffsetRecord(
        OffsetCommitKey(group="g", topic="t", partition=0), None
    )


def joined(meta: str, *more: str) -> GroupHost:
    """A group of one member."""
    script = Script()
    script.run(f"join a version=3 meta={meta}")
    for line in more:
        script.run(line)
    return script.host


READS_T = "\0\0\0\0\0\1\0\1t\0\0\0\0"
"""A subscription of version 0: topics, no user data."""
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("meta", [READS_T, "unreadable"])
def test_consumers_keep_the_offsets_of_what_they_read(meta):
    for lines in ((), ("wait 3000",), ("wait 3000", "sync a a=share")):
        host = joined(meta, *lines)
        assert codes(delete(host, ("t", [0]))) == [[SUBSCRIBED]]
    assert codes(delete(host, ("u", [0]))) == ([[SUBSCRIBED]] if meta == "unreadable" else [[0]])


def test_members_of_another_kind_keep_all_offsets():
    host = joined("x")
    group = host.classic("g")
    assert group is not None
    group.protocol_type = "connect"
    assert delete(host, ("t", [0])).error_code == ErrorCode.NON_EMPTY_GROUP


def test_what_the_last_generation_read_counts_while_members_change_to_another_assignor():
    script = Script()
    for line in (
        f"join a version=3 protocols=range,roundrobin meta={READS_T}",
        "wait 3000",
        "sync a a=share",
        f"join b version=3 protocols=roundrobin meta={READS_T}",
    ):
        script.run(line)
    group = script.host.classic("g")
    assert group is not None
    assert group.state is GroupState.PREPARING_REBALANCE
    assert codes(delete(script.host, ("t", [0]), ("u", [0]))) == [[SUBSCRIBED], [0]]

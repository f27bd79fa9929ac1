import pytest
from logfleet.coordinators.records import UnknownRecord
from logfleet.groups.classic.records import GroupMetadataRecord
from logfleet.groups.records import GroupRecord, OffsetRecord
from logfleet.groups.registry import record_types
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

RECORDS = record_types()

OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=3)
TOPIC_ID = bytes(range(16))

# Written out by hand from the schemas of Kafka's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue.
GOLDEN: list[tuple[str, GroupRecord, bytes, bytes | None]] = [
    (
        "an offset",
        OffsetRecord(
            OFFSET_KEY,
            OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9),
        ),
        b"\0\x01\0\x01g\0\x01t\0\0\0\x03",
        b"\0\x04\0\0\0\0\0\0\0\x05\0\0\0\x02\x02m\0\0\0\0\0\0\0\x09\0",
    ),
    (
        "an offset of a topic whose id is known",
        OffsetRecord(
            OFFSET_KEY, OffsetCommitValue(offset=5, commit_timestamp=9, topic_id=TOPIC_ID)
        ),
        b"\0\x01\0\x01g\0\x01t\0\0\0\x03",
        b"\0\x04\0\0\0\0\0\0\0\x05\xff\xff\xff\xff\x01\0\0\0\0\0\0\0\x09\x01\0\x10" + TOPIC_ID,
    ),
    (
        "an offset with an expiry of its own",
        OffsetRecord(
            OFFSET_KEY, OffsetCommitValue(offset=5, commit_timestamp=9, expire_timestamp=10)
        ),
        b"\0\x01\0\x01g\0\x01t\0\0\0\x03",
        b"\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0a",
    ),
    (
        "no offset any more",
        OffsetRecord(OFFSET_KEY, None),
        b"\0\x01\0\x01g\0\x01t\0\0\0\x03",
        None,
    ),
    (
        "an empty group",
        GroupMetadataRecord(
            GroupMetadataKey(group="g"),
            GroupMetadataValue(generation=4, protocol=None, leader=None, current_state_timestamp=9),
        ),
        b"\0\x02\0\x01g",
        b"\0\x03\0\0\0\0\0\x04\xff\xff\xff\xff\0\0\0\0\0\0\0\x09\0\0\0\0",
    ),
    (
        "a group with a member",
        GroupMetadataRecord(
            GroupMetadataKey(group="g"),
            GroupMetadataValue(
                protocol_type="c",
                generation=4,
                protocol="p",
                leader="m",
                current_state_timestamp=9,
                members=[
                    GroupMetadataValue.MemberMetadata(
                        member_id="m",
                        group_instance_id="i",
                        client_id="c",
                        client_host="/h",
                        rebalance_timeout=1,
                        session_timeout=2,
                        subscription=b"s",
                        assignment=b"a",
                    )
                ],
            ),
        ),
        b"\0\x02\0\x01g",
        (
            b"\0\x03"
            b"\0\x01c"
            b"\0\0\0\x04"
            b"\0\x01p"
            b"\0\x01m"
            b"\0\0\0\0\0\0\0\x09"
            b"\0\0\0\x01"
            b"\0\x01m"
            b"\0\x01i"
            b"\0\x01c"
            b"\0\x02/h"
            b"\0\0\0\x01"
            b"\0\0\0\x02"
            b"\0\0\0\x01s"
            b"\0\0\0\x01a"
        ),
    ),
    (
        "no group any more",
        GroupMetadataRecord(GroupMetadataKey(group="g"), None),
        b"\0\x02\0\x01g",
        None,
    ),
]


@pytest.mark.parametrize(
    "record,key,value", [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_records_are_written_byte_for_byte_as_kafka_does(record, key, value):
    assert RECORDS.encode(record) == (key, value)
    assert RECORDS.decode(memoryview(key), None if value is None else memoryview(value)) == record


def test_keys_of_old_brokers_are_read():
    key = b"\0\0\0\x01g\0\x01t\0\0\0\x03"
    assert RECORDS.decode(memoryview(key), None) == OffsetRecord(OFFSET_KEY, None)


def test_values_of_old_brokers_are_read():
    value = b"\0\x03\0\0\0\0\0\0\0\x05\0\0\0\x02\0\x01m\0\0\0\0\0\0\0\x09"
    record = RECORDS.decode(memoryview(GOLDEN[0][2]), memoryview(value))
    assert record == GOLDEN[0][1]


@pytest.mark.parametrize(
    "key,value",
    [(b"\0\x03\0\x01g", None), (GOLDEN[0][2], b"\0\x05"), (GOLDEN[4][2], b"\0\x09")],
    ids=["kind", "offset version", "group version"],
)
def test_what_newer_brokers_write_is_told_apart_from_garbage(key, value):
    with pytest.raises(UnknownRecord):
        RECORDS.decode(memoryview(key), None if value is None else memoryview(value))


@pytest.mark.parametrize(
    "key,value", [(b"", None), (b"\0\x01\0\x05g", None), (GOLDEN[0][2], b"\0")]
)
def test_garbage_is_malformed(key, value):
    with pytest.raises(MalformedMessage):
        RECORDS.decode(memoryview(key), None if value is None else memoryview(value))

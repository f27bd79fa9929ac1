import pytest
from logfleet.coordinators.records import UnknownRecord, prefix, prefixed, value_version
from logfleet.wire.errors import MalformedMessage


def test_a_message_follows_its_kind():
    assert prefixed(2, b"message") == b"\0\x02message"
    assert prefix(memoryview(b"\0\x02message")) == 2


def test_without_room_for_a_kind_a_key_is_malformed():
    with pytest.raises(MalformedMessage):
        prefix(memoryview(b"\0"))


def test_versions_of_newer_brokers_are_unknown():
    assert value_version(memoryview(b"\0\x01"), newest=1) == 1
    for value in (b"\0\x02", b"\xff\xff"):
        with pytest.raises(UnknownRecord):
            value_version(memoryview(value), newest=1)

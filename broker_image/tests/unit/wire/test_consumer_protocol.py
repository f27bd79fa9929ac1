import pytest
from logfleet.wire import consumer_protocol
from logfleet.wire.errors import MalformedMessage


def test_members_read_each_others_bytes() -> None:
    assert consumer_protocol.read_subscription(
        consumer_protocol.write_subscription(["b", "a"])
    ) == ["a", "b"]
    assignment = {"t": [0, 2], "u": [1]}
    assert (
        consumer_protocol.read_assignment(consumer_protocol.write_assignment(assignment))
        == assignment
    )
    assert consumer_protocol.read_assignment(b"") == {}


def test_a_newer_member_is_read_as_the_newest_supported_version() -> None:
    data = bytearray(consumer_protocol.write_subscription(["t"]))
    data[1] = (
        99  # fields of version 3 follow: owned partitions are there, generation and rack are not
    )
    data += b"\xff\xff\xff\xff" + b"\xff\xff" + b"what version 99 added"
    assert consumer_protocol.read_subscription(bytes(data)) == ["t"]


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\x09"])
def test_other_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        consumer_protocol.read_subscription(data)

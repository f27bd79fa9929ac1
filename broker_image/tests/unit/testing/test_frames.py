"""The test's end of a control channel, with a program's other end played by the test."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from logfleet.testing.errors import OrderFailed, ProcessEnded
from logfleet.testing.frames import LENGTH, STARTED, Channel, decode, frame

TIMEOUT_S = 5.0


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel("it", ours), theirs


def received(end: socket.socket) -> dict[str, Any]:
    (length,) = LENGTH.unpack(end.recv(LENGTH.size))
    message: dict[str, Any] = decode(end.recv(length))
    return message


def test_an_order_goes_out_with_its_arguments_and_its_result_comes_back(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, other = ends
    other.sendall(frame({"id": 1, "result": b"x" * 100_000}))
    assert channel.ask("dance", timeout_s=TIMEOUT_S, steps=3) == b"x" * 100_000
    assert received(other) == {"id": 1, "do": "dance", "steps": 3}


def test_an_answer_to_an_order_that_was_given_up_is_dropped(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, other = ends
    half = frame({"id": 1, "result": "late"})
    other.sendall(half[:7])
    with pytest.raises(ProcessEnded, match=r"it does not answer within 0\.01 s"):
        channel.ask("dance", timeout_s=0.01)
    other.sendall(half[7:] + frame({"id": 2, "result": "in time"}))
    assert channel.ask("dance", timeout_s=TIMEOUT_S) == "in time"


def test_a_sentence_of_the_other_side_is_raised(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    other.sendall(frame({"id": STARTED, "error": "the port is taken"}))
    with pytest.raises(OrderFailed, match="the port is taken"):
        channel.started(TIMEOUT_S)


def test_a_side_that_is_gone_is_named(ends: tuple[Channel, socket.socket]) -> None:
    channel, other = ends
    assert not channel.wait_closed(0.01)
    other.close()
    assert channel.wait_closed(TIMEOUT_S)
    with pytest.raises(ProcessEnded, match="it "):
        channel.ask("dance", timeout_s=TIMEOUT_S)

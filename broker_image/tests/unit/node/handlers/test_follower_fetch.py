"""A follower's fetches of one partition get what they get when they are decoded."""

import asyncio
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.config.throttle_keys import Side
from logfleet.net.peer import PARKED, Peer
from logfleet.node.dispatch import Dispatcher
from logfleet.node.handlers.fetch import HANDLERS
from logfleet.node.handlers.fetch_calls import HIGH_WATERMARK_S
from logfleet.node.handlers.follower_fetch import FollowerFetch
from logfleet.node.partitions.leader_partition import LeaderPartition
from logfleet.records.batch import iterate_headers
from logfleet.types import BrokerEpoch
from logfleet.wire.apis import api_of
from logfleet.wire.frame import SIZE_BYTES, decode_response, encode_request
from logfleet.wire.messages import FetchRequest

from broker_image.tests.unit.node.handlers.conftest import Host, topic_id_of
from broker_image.tests.unit.node.handlers.fetch_rig import append, request, rows_of
from broker_image.tests.unit.node.handlers.test_replica_fetch import (
    EPOCH,
    VERSION,
    host_replicated,
    throttled_at,
)
from broker_image.tests.unit.node.peer_rig import FakeLink

pytestmark = pytest.mark.asyncio
ME = FetchRequest.ReplicaState(replica_id=2, replica_epoch=BrokerEpoch(20))
LONG_MS = 60_000


class Leader:
    """A leader and a follower's connection.

    forgets: each request comes by a connection of its own, so that all are decoded. decoded: how
    many were.
    """

    def __init__(self, host: Any, *, forgets: bool) -> None:
        self.host = host
        self.dispatch = Dispatcher(host, HANDLERS)
        self.host.requests = self.dispatch.requests
        self.looked_at: list[LeaderPartition] = []
        self.host.isr_writer = SimpleNamespace(check=self.looked_at.append)
        self.partition, self.other = (host_replicated(host, name) for name in ("topic", "other"))
        for partition in (self.partition, self.other):
            partition.isr_change(0, lambda *_: True)  # nothing is due
        self.forgets = forgets
        self.session_id = self.epoch = 0
        self.connect()

    def connect(self) -> None:
        self.peer = Peer("PLAINTEXT")
        self.link = FakeLink(self.peer)

    def send(self, *rows: tuple[str, int], **given: Any) -> Any:
        """What the dispatcher returns for a fetch of (topic, offset)...

        given: fields of the request and its rows.
        """
        if self.forgets:
            self.connect()
        fields = {"current_leader_epoch": EPOCH, "last_fetched_epoch": EPOCH, "log_start_offset": 0}
        fields |= {key: given.pop(key) for key in [*fields, "partition_max_bytes"] if key in given}
        given = {"max_wait_ms": LONG_MS, "min_bytes": 1, "replica_state": ME, **given}
        given = {"session_id": self.session_id, "session_epoch": self.epoch, **given}
        asked = request(*((topic, 0, offset, fields) for topic, offset in rows), **given)
        for topic in asked.topics:
            topic.topic = ""
        self.epoch += 1
        frame = b"".join(encode_request(asked, VERSION, self.epoch, "fetcher"))  # type: ignore[arg-type]
        return self.dispatch(self.peer, memoryview(bytearray(frame))[SIZE_BYTES:])

    async def begin(self) -> None:
        """The first requests of the session, and one by which the others are recognised."""
        reply = self.send(("topic", 0), ("other", 0), max_wait_ms=0)
        self.session_id = decoded(self.read(await self.link.wait(reply))).session_id
        append(self.partition, b"first")
        reply = self.send()
        await self.link.wait(reply)

    @staticmethod
    def read(answer: Any) -> bytes:
        """The bytes that are sent."""
        parts = answer if isinstance(answer, list) else [answer]
        return b"".join(part if isinstance(part, bytes) else part.read() for part in parts)

    @property
    def is_parked_as_known(self) -> bool:
        (session,) = self.host.fetch_sessions._sessions.values()
        return isinstance(session.parked, FollowerFetch)

    def state(self) -> Any:
        (session,) = self.host.fetch_sessions._sessions.values()
        followers = [
            {
                key: getattr(each, key)
                for key in ("broker_epoch", "log_end_offset", "log_start_offset")
            }
            for partition in (self.partition, self.other)
            for each in partition.replicas_state.followers.values()
        ]
        rows = [
            (row.wanted, row.high_watermark, row.log_start_offset, row.place, row in session._due)
            for row in session.partitions.values()
        ]
        stats = self.dispatch.stats["Fetch"]
        return (
            [partition.high_watermark for partition in (self.partition, self.other)],
            followers,
            (session.epoch, rows, session.parked),
            self.host.partitions.replicated.bytes_out,
            (stats.requests, stats.errors, stats.failures),
            self.host.parked.fetches,
            len(self.looked_at),
            len(self.host.failed),
            self.host.replication_throttle.is_held_back(Side.LEADER, "topic", 0),
            self.host.follower_fetches.follows(2, 20, (topic_id_of("topic"), 0), EPOCH, 0),
        )


def decoded(answer: bytes) -> Any:
    return decode_response(api_of(FetchRequest), VERSION, memoryview(answer)[SIZE_BYTES:])[1]


@pytest.fixture
def leaders(host: Host, tmp_path: Path) -> Iterator[list[Leader]]:
    other = Host(tmp_path / "decoded")
    yield [Leader(host, forgets=False), Leader(other, forgets=True)]
    other.close()


Act = Callable[[Leader], object]


async def compare(
    leaders: list[Leader], *, before: Act | None = None, meanwhile: Act | None = None, **given: Any
) -> tuple[bool, bytes]:
    """Send one request to each side, after `before`; read its answer, after `meanwhile`.

    Returns whether the first was recognised, and the answer of both.
    """
    answers, known = [], []
    for leader in leaders:
        await leader.begin()
        if before is not None:
            before(leader)
        what = {"rows": [("topic", 1)], **given}
        reply = leader.send(*what.pop("rows"), **what)
        known.append(reply is PARKED and leader.is_parked_as_known)
        if meanwhile is not None:
            meanwhile(leader)
        answers.append(leader.read(await leader.link.wait(reply)))
    assert answers[0] == answers[1]
    assert leaders[0].state() == leaders[1].state()
    assert not known[1]
    return known[0], answers[0]


def appended(leader: Leader) -> None:
    append(leader.partition, b"second")


def appended_twice(leader: Leader) -> None:
    appended(leader)
    appended(leader)


def appended_elsewhere(leader: Leader) -> None:
    append(leader.other, b"other")


def appended_to_both(leader: Leader) -> None:
    appended(leader)
    appended_elsewhere(leader)


def led_elsewhere(leader: Leader) -> None:
    leader.host.know_topic("topic", {0: 3})
    leader.host.partitions.remove(leader.partition)


def left(leader: Leader) -> None:
    assert leader.peer.on_leave is not None
    leader.peer.on_leave()


def throttled(leader: Leader) -> None:
    """What it gets counts (KIP-73)."""
    throttled_at(leader.host, 1)
    appended(leader)


def unreadable(leader: Leader) -> None:
    """The broker would give up the log directory."""

    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "bad sector")

    leader.partition.log.read = failing  # type: ignore[method-assign]
    appended(leader)


def overtaken(leader: Leader) -> None:
    """Another request goes on with the session."""
    peer, link = leader.peer, leader.link
    leader.connect()
    leader.send(max_wait_ms=0)
    leader.epoch -= 1
    leader.peer, leader.link = peer, link
    appended(leader)


@pytest.mark.parametrize(
    "meanwhile",
    [
        appended,
        appended_twice,
        appended_elsewhere,
        appended_to_both,
        led_elsewhere,
        left,
        unreadable,
        overtaken,
        throttled,
    ],
    ids=lambda each: each.__name__,
)
async def test_however_the_wait_ends_it_is_answered_as_if_it_had_been_decoded(
    leaders: list[Leader], meanwhile: Act
) -> None:
    is_known, _ = await compare(leaders, meanwhile=meanwhile)
    assert is_known


async def test_records_are_answered_without_decoding_or_encoding(
    leaders: list[Leader], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = leaders
    await leader.begin()
    for name in ("decode_request_header", "_Version.answer"):
        monkeypatch.setattr(f"logfleet.node.dispatch.{name}", lambda *_: pytest.fail("decoded"))
    for offset in range(1, 5):
        reply = leader.send(("topic", offset))
        assert leader.partition.high_watermark == offset
        appended(leader)
        (row,) = rows_of(decoded(leader.read(await leader.link.wait(reply))))
        assert (row.high_watermark, len(row.records) > 0) == (offset, True)
    assert leader.host.parked.fetches == 0
    assert leader.peer.on_leave is None


@pytest.mark.parametrize("partition_max_bytes, batches", [(1, 1), (100, 1), (1 << 20, 2)])
async def test_the_limits_of_the_request_hold(
    leaders: list[Leader], partition_max_bytes: int, batches: int
) -> None:
    """The first batch always gets through (KIP-74)."""
    is_known, answer = await compare(
        leaders, meanwhile=appended_twice, partition_max_bytes=partition_max_bytes
    )
    (row,) = rows_of(decoded(answer))
    assert is_known
    assert len(list(iterate_headers(row.records))) == batches


@pytest.mark.parametrize("max_wait_ms", [1, LONG_MS])
async def test_it_waits_no_longer_than_asked_and_learns_of_a_high_watermark_soon(
    leaders: list[Leader], max_wait_ms: int
) -> None:
    """The request itself has moved the high watermark."""
    is_known, answer = await compare(leaders, max_wait_ms=max_wait_ms)
    (row,) = rows_of(decoded(answer))
    assert (is_known, row.high_watermark, len(row.records)) == (True, 1, 0)


async def test_a_time_limit_of_an_earlier_request_does_not_end_a_later_one(
    leaders: list[Leader],
) -> None:
    leader, _ = leaders
    await leader.begin()
    reply = leader.send(("topic", 1), max_wait_ms=1)  # and a high watermark to learn, in 20 ms
    appended(leader)
    await leader.link.wait(reply)
    (fetch,) = leader.peer.repeats.values()
    assert isinstance(fetch, FollowerFetch)
    reply = leader.send(("topic", 2))
    now_s = asyncio.get_running_loop().time()
    next_s = fetch._on_alarm(now_s + HIGH_WATERMARK_S / 2)
    assert next_s is not None
    await asyncio.sleep(0)
    assert not leader.link.has_answered
    fetch._on_alarm(next_s)
    await leader.link.wait(reply)
    assert fetch._on_alarm(next_s) is None


@pytest.mark.parametrize(
    "given",
    [
        {"rows": [("topic", 0)]},  # there is more to read
        {"rows": [("topic", 2)]},  # beyond the end
        {"rows": [("topic", 1), ("other", 0)]},
        {"rows": []},
        {"rows": [("none", 0)]},
        {"max_wait_ms": 0},
        {"min_bytes": 0},
        {"current_leader_epoch": EPOCH - 1},
        {"current_leader_epoch": EPOCH + 1},
        {"last_fetched_epoch": EPOCH - 1},
        {"replica_state": FetchRequest.ReplicaState(replica_id=2, replica_epoch=BrokerEpoch(19))},
        {"replica_state": FetchRequest.ReplicaState(replica_id=3, replica_epoch=BrokerEpoch(30))},
        {"session_id": 9},
        {"session_epoch": 7},
        {"before": appended_elsewhere},
        {"before": led_elsewhere},
    ],
)
async def test_what_is_not_ordinary_is_decoded_and_finds_everything_as_it_was(
    leaders: list[Leader], given: dict[str, Any]
) -> None:
    is_known, _ = await compare(leaders, meanwhile=end_soon, **given)
    assert not is_known


def end_soon(leader: Leader) -> None:
    """Whatever waits, waits no longer."""
    if leader.peer.on_leave is not None:
        leader.peer.on_leave()


async def test_a_newer_registration_of_the_follower_is_reported_to_the_isr_writer(
    leaders: list[Leader],
) -> None:
    newer = FetchRequest.ReplicaState(replica_id=2, replica_epoch=BrokerEpoch(21))
    is_known, _ = await compare(leaders, meanwhile=appended, replica_state=newer)
    assert is_known
    assert leaders[0].looked_at == [leaders[0].partition]


async def test_a_connection_that_is_lost_costs_no_answer(leaders: list[Leader]) -> None:
    leader, _ = leaders
    await leader.begin()
    leader.send(("topic", 1))
    leader.peer.link = None
    left(leader)
    await asyncio.sleep(0)
    assert leader.host.parked.fetches == 0
    assert not leader.link.has_answered


async def test_consumers_and_other_versions_are_not_remembered(host: Host) -> None:
    leader = Leader(host, forgets=False)
    reply = leader.send(("topic", 0), replica_state=None, max_wait_ms=0)
    await leader.link.wait(reply)
    assert not leader.peer.repeats

"""How a simulated broker follows: the product's `Fetcher` for each leader, and its shell, with one fetch at a time.

Each request names all wanted partitions: what a fetch session saves is not simulated.
"""

from itertools import takewhile
from typing import Any

from logfleet.replication import follower
from logfleet.replication.fetcher import (
    Apply,
    AskRange,
    Effect,
    Fetcher,
    LeaderAt,
    Restart,
    Truncate,
)
from logfleet.replication.leader_epochs import LeaderEpochs
from logfleet.replication.partition_fetch import Key
from logfleet.types import NO_BROKER_EPOCH, LeaderEpoch
from logfleet.wire.messages import FetchResponse

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Future, Process
from broker_image.tests.sim.messages import Fetch, Range, Row
from broker_image.tests.sim.net import DISCONNECTED, Disconnected
from broker_image.tests.sim.node import Node
from broker_image.tests.sim.replica import Replica

BACK_OFF_S = 1.0
FETCH_WAIT_MS = 500
FETCH_BYTES = 1 << 20
TRUNCATION_MS = 20


class Followed:
    """A replica while it follows one leader in one leader epoch, and the log of both.

    leader_start: where the leader's log starts, by its last answer. No replica is throttled, and no
    disk is held up.
    """

    lag = -1

    def __init__(self, replica: Replica) -> None:
        assert replica.leader is not None
        self.replica = replica
        self.topic_id, self.index = _key(replica.index)
        self.leader = replica.leader
        self.leader_epoch = LeaderEpoch(replica.leader_epoch)
        self.leader_start = 0

    @property
    def log(self) -> "Followed":
        return self

    @property
    def epochs(self) -> LeaderEpochs:
        return self.replica.log.epochs

    @property
    def log_start_offset(self) -> int:
        return self.replica.log.start_offset

    @property
    def log_end_offset(self) -> int:
        return self.replica.log.end_offset

    written_end_offset = log_end_offset


class Fetching:
    """Everything that a broker follows. A fetcher without partitions stays, as its leader may lead again."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._followed: dict[int, Followed] = {}
        self._leaders: dict[int, FromLeader] = {}

    def follow(self, replica: Replica) -> None:
        followed = self._followed[replica.index] = Followed(replica)
        leader = self._leaders.get(followed.leader)
        if leader is None:
            leader = self._leaders[followed.leader] = FromLeader(self._node, followed.leader)
            self._node.fleet.kernel.spawn(self._node.host, "fetch", leader.run())
        leader.add(followed)

    def unfollow(self, index: int) -> None:
        followed = self._followed.pop(index)
        self._leaders[followed.leader].fetcher.removed(followed)


class FromLeader:
    """The shell of one fetcher, and its session: the partitions that it wants named."""

    def __init__(self, node: Node, leader: int) -> None:
        self._node, self._kernel = node, node.fleet.kernel
        self._leader = leader
        self._wanted: dict[Key, None] = {}
        self._changed = Future()  # there may be something to fetch
        self._call: Future | None = None  # the request in flight
        self.fetcher: Fetcher[Followed] = Fetcher(
            self, throttle_ms=lambda _: 0, backoff_s=BACK_OFF_S
        )

    def want(self, key: Key) -> None:
        self._wanted[key] = None

    def unwant(self, key: Key) -> None:
        self._wanted.pop(key, None)

    def restart(self) -> None:
        """Each request names all."""

    def add(self, followed: Followed) -> None:
        assert self.fetcher.assigned(followed) is None, "simulated disks are never held up"
        if self._call is not None and self.fetcher.must_reconnect(self._leader_at()):
            self._call.resolve(DISCONNECTED)
        self._changed.resolve()

    def run(self) -> Process:
        while True:
            while not self.fetcher.partitions:
                self._changed = Future()
                yield self._changed
            leader_at = self._leader_at()
            self.fetcher.connecting(leader_at)
            if leader_at is not None:
                yield from self._follow()
            yield int(self.fetcher.disconnected() * 1000)

    def _leader_at(self) -> LeaderAt | None:
        leader = self._node.image.brokers.get(self._leader)
        return None if leader is None else (leader.epoch, "", 0)

    @property
    def _now_s(self) -> float:
        return self._kernel.now / 1000

    def _follow(self) -> Process:
        """Until the connection breaks."""
        while True:
            pause_s = self.fetcher.resume(self._now_s)
            wait_ms = FETCH_WAIT_MS if pause_s is None else int(pause_s * 1000) + 1
            if not self._wanted:
                self._changed = Future()
                if pause_s is not None:
                    self._kernel.expire(self._node.host, self._changed, wait_ms, None)
                yield self._changed
                continue
            answer = yield from self._ask(self._request(min(wait_ms, FETCH_WAIT_MS)))
            if isinstance(answer, Disconnected):
                return
            self.fetcher.responded()
            pause_ms = self._kernel.draw("schedule.fetch", 5)
            if pause_ms > 1:
                yield pause_ms
            for index, row in answer.items():
                effect = self._receive(index, row)
                if isinstance(effect, AskRange):
                    fetch = effect.fetch
                    ends = yield from self._ask(
                        Range(fetch.replica.index, fetch.replica.leader_epoch)
                    )
                    if isinstance(ends, Disconnected):
                        return
                    effect = self.fetcher.range_received(fetch, ends, self._now_s)
                self._carry_out(effect)

    def _ask(self, request: Fetch | Range) -> Process:
        node = self._node
        self._call = node.fleet.net.call(node.host, f"b{self._leader}", request)
        answer = yield self._call
        self._call = None
        return answer

    def _request(self, wait_ms: int) -> Fetch:
        rows, starts, known = {}, {}, {}
        for key in self._wanted:
            fetch = self.fetcher.partitions[key]
            index, followed = naming.number(*key), fetch.replica
            starts[index] = fetch.ask(FETCH_BYTES).log_start_offset
            assert fetch.asked is not None
            rows[index] = fetch.asked
            known[index] = (followed.replica.high_watermark, followed.leader_start)
        epoch = NO_BROKER_EPOCH if self._node.epoch is None else self._node.epoch
        return Fetch(self._node.id, epoch, rows, starts, known, wait_ms)

    def _receive(self, index: int, row: Row) -> Effect[Followed] | None:
        fetch = self.fetcher.partitions.get(_key(index))
        if fetch is None or fetch.asked is None:
            self._kernel.sometimes("an answer came to what was no longer asked")
        epoch, end = row.diverging or (-1, -1)
        batches: Any = row.batches
        decoded = FetchResponse.PartitionData(
            error_code=row.error,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end),
            high_watermark=row.high_watermark,
            log_start_offset=row.log_start,
            records=batches,
        )
        return self.fetcher.received(_key(index), decoded, self._now_s)

    def _carry_out(self, effect: Effect[Followed] | None) -> None:
        match effect:
            case Apply():
                self._apply(effect)
            case Truncate() | Restart():
                delay_ms = self._kernel.draw("truncate.ms", TRUNCATION_MS)
                self._kernel.at(delay_ms, self._node.host, "truncate", self._truncate, effect)
            case _:
                assert effect is None, f"a log is ahead of its leader: {effect}"

    def _apply(self, effect: Apply[Followed]) -> None:
        fetch, row, followed = effect.fetch, effect.row, effect.fetch.replica
        replica, log = followed.replica, followed.replica.log
        batches: Any = row.records
        taken = list(takewhile(lambda each: each.epoch <= followed.leader_epoch, batches))
        for batch in taken:
            replica.append(batch)
        if taken:
            self._carry_out(self.fetcher.appended(fetch, self._now_s))
        elif batches:
            first_epoch = LeaderEpoch(batches[0].epoch)
            self.fetcher.nothing_appended(fetch, first_epoch, self._now_s)
        replica.leader_committed(
            follower.high_watermark(replica.high_watermark, row.high_watermark, log.end_offset)
        )
        followed.leader_start = row.log_start_offset
        start = log.start_offset
        replica.delete_before(
            follower.log_start_offset(start, row.log_start_offset, replica.high_watermark)
        )
        if log.start_offset != start:
            self.fetcher.log_start_moved(fetch)

    def _truncate(self, effect: Truncate[Followed] | Restart[Followed]) -> None:
        fetch = effect.fetch
        if not fetch.is_ended:
            replica = fetch.replica.replica
            act = replica.truncate if isinstance(effect, Truncate) else replica.reset
            act(effect.offset)
        self._carry_out(self.fetcher.truncated(fetch, self._now_s, is_done=True))
        self._changed.resolve()


def _key(index: int) -> Key:
    """Of the partition that has this number."""
    return naming.topic_of(index), naming.index_of(index)

"""How a simulated broker follows: one connection and one fetch at a time to each leader, for all partitions that it leads."""

from logfleet.replication import follower
from logfleet.replication.follower import Action, NextFetch
from logfleet.types import LeaderEpoch
from logfleet.wire.messages import FetchResponse

from broker_image.tests.sim import naming
from broker_image.tests.sim.kernel import Future, Process
from broker_image.tests.sim.leading import Leading
from broker_image.tests.sim.messages import Fetch, Range, Row
from broker_image.tests.sim.net import Disconnected
from broker_image.tests.sim.node import Node
from broker_image.tests.sim.replica import Replica

BACK_OFF_MS = 100
BACK_OFF_MS_MAX = 800


class Fetching:
    def __init__(self, node: Node, leading: Leading) -> None:
        self._node = node
        self._leading = leading
        self._leaders: dict[int, Future] = {}

    def wake(self) -> None:
        """What is followed may have changed."""
        for replica in self._leading.replicas.values():
            leader = replica.leader
            if leader is not None:
                if leader not in self._leaders:
                    self._leaders[leader] = Future()
                    self._node.fleet.kernel.spawn(self._node.host, "fetch", self._fetching(leader))
                elif not replica.is_waiting:
                    self._leaders[leader].resolve()

    def _followed(self, leader: int) -> dict[int, Replica]:
        return {
            index: replica
            for index, replica in self._leading.replicas.items()
            if replica.leader == leader
        }

    def _fetching(self, leader: int) -> Process:
        node, kernel = self._node, self._node.fleet.kernel
        target, back_off_ms = f"b{leader}", BACK_OFF_MS
        while followed := self._followed(leader):
            rows = {
                index: follower.next_fetch(
                    replica.log.epochs, replica.log.end_offset, LeaderEpoch(replica.leader_epoch)
                )
                for index, replica in followed.items()
                if not replica.is_waiting
            }
            if not rows or node.epoch is None:
                woken = self._leaders[leader] = Future()
                yield woken
                continue
            starts = {index: followed[index].log.start_offset for index in rows}
            known = {
                index: (followed[index].high_watermark, followed[index].leader_start)
                for index in rows
            }
            answer = yield node.fleet.net.call(
                node.host, target, Fetch(node.id, node.epoch, rows, starts, known)
            )
            if isinstance(answer, Disconnected):
                yield back_off_ms
                back_off_ms = min(2 * back_off_ms, BACK_OFF_MS_MAX)
                continue
            pause_ms = kernel.draw("schedule.fetch", 5)
            if pause_ms > 1:
                yield pause_ms
            backs_off = False
            for index, row in answer.items():
                replica = followed[index]
                if replica.leader is not None:  # of which leader the answer is, `decide` looks
                    backs_off |= yield from self._take(replica, target, rows[index], row)
            if backs_off:
                yield back_off_ms
                back_off_ms = min(2 * back_off_ms, BACK_OFF_MS_MAX)
            else:
                back_off_ms = BACK_OFF_MS
        del self._leaders[leader]

    def _take(self, replica: Replica, target: str, asked: NextFetch, row: Row) -> Process:
        """Do what a row means; returns whether to wait before the next fetch."""
        node, log = self._node, replica.log
        now = follower.next_fetch(log.epochs, log.end_offset, LeaderEpoch(replica.leader_epoch))
        epoch, end = row.diverging or (-1, -1)
        told = FetchResponse.PartitionData(
            error_code=row.error,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end),
            log_start_offset=row.log_start,
        )
        decision = follower.decide(asked, now, told, log.epochs)
        match decision.action:
            case Action.APPEND:
                for batch in row.batches:
                    replica.append(batch)
                replica.told(
                    follower.high_watermark(
                        replica.high_watermark, row.high_watermark, log.end_offset
                    )
                )
                replica.leader_start = row.log_start
                replica.delete_before(
                    follower.log_start_offset(
                        log.start_offset, row.log_start, replica.high_watermark
                    )
                )
            case Action.TRUNCATE:
                replica.truncate(decision.offset)
            case Action.RESET:
                replica.reset(decision.offset)
            case Action.WAIT:
                replica.is_waiting = True
            case Action.ASK_RANGE:
                ends = yield node.fleet.net.call(
                    node.host, target, Range(naming.index_of(replica.index), replica.leader_epoch)
                )
                if isinstance(ends, tuple) and replica.leader == int(target[1:]):
                    found = follower.out_of_range(log.end_offset, *ends)
                    if found.action is Action.TRUNCATE:
                        replica.truncate(found.offset)
                    elif found.action is Action.RESET:
                        replica.reset(found.offset)
                return True
            case Action.BACK_OFF:
                return True
            case Action.FETCH_ON:
                node.fleet.kernel.sometimes("an answer came to what was no longer asked")
        return False

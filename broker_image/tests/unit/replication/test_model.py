"""Three replicas of one partition whose brokers die, lose their tails, hear of things late and get no answers from the store.

Everything that decides is the product's; the controller is the least that obeys the order in which it has to act. What holds after every step: no
leader's high watermark goes back, and what lies below any of them is held by all whom a clean election could choose.
"""

from collections.abc import Callable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCED, BrokerValue
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION, PartitionValue
from logfleet.metadata.store import Txn
from logfleet.replication.ends import NoEffects, ReplicaEnds
from logfleet.replication.fetch_check import diverging_epoch, leader_epoch_error
from logfleet.replication.follower import (
    Action,
    NextFetch,
    decide,
    next_fetch,
)
from logfleet.replication.isr_write import Won, isr_txns, read_answer
from logfleet.replication.leader import LeaderReplicas
from logfleet.replication.leader_epochs import LeaderEpochs
from logfleet.replication.partition_state import effective_min_isr, with_isr
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FetchResponse

from broker_image.tests.unit.replication.store_rig import Store

IDS = (1, 2, 3)
KEY = PARTITION.key((uuids.from_text("AAAAAAAAAAAAAAAAAAAAAQ"), 0))
LAG_MAX_MS = 100
EFFECTS = NoEffects()

Record = tuple[int, int]  # leader epoch and a number of its own
Row = FetchResponse.PartitionData


class Replica:
    """A broker's process with its log; what it knows of the cluster is as old as its last `learn`."""

    def __init__(self, broker_id: int, epoch: BrokerEpoch) -> None:
        self.id = broker_id
        self.epoch = epoch
        self.is_unclean = False
        self.log: list[Record] = []
        self.ends = ReplicaEnds()
        self.epochs = LeaderEpochs()
        self.image = ClusterImage()
        self.state: PartitionValue | None = None
        self.txn: Txn | None = None
        self.answer: tuple[NextFetch, Row, list[Record]] | None = None

    @property
    def leading(self) -> LeaderReplicas | None:
        return self.ends.leading

    def extend(self, record: Record) -> None:
        self.log.append(record)
        self.ends.extended(len(self.log))
        self.ends.written(len(self.log), self.ends.truncations)

    def restart(self, epoch: BrokerEpoch, lost: int) -> None:
        self.epoch = epoch
        self.is_unclean |= lost > 0  # a clean stop before it was let in makes up for nothing
        high_watermark = self.ends.high_watermark
        self.ends = ReplicaEnds(log_end_offset=len(self.log))
        self.ends.hosted(high_watermark)
        self.cut(max(0, len(self.log) - lost))
        self.image, self.state = ClusterImage(), None
        self.txn = self.answer = None

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs.truncate_end(offset)
        self.ends.lowered(offset)
        self.ends.truncated(min(offset, self.ends.log_end_offset))

    def learn(self, image: ClusterImage, state: PartitionValue, revision: int, now_ms: int) -> None:
        self.image = image
        if self.state is not None and state.partition_epoch <= self.state.partition_epoch:
            return
        last, self.state = self.state, state
        if self.leading is not None:
            if self.ends.learned(state, revision):
                return
            self.step_down()
        self.ends.stop(EFFECTS)
        if state.leader != self.id or (self.id, self.epoch) not in state.isr:
            self.ends.follow(EFFECTS)
            return
        if last is None or state.leader_epoch > last.leader_epoch:
            self.epochs.assign(state.leader_epoch, len(self.log))
            replicas = LeaderReplicas(
                self.id, state, revision, ends=self.ends, lag_max_ms=LAG_MAX_MS, now_ms=now_ms
            )
            self.ends.lead(replicas, EFFECTS)

    def step_down(self) -> None:
        assert self.leading is not None
        self.ends.stop(EFFECTS)
        self.txn = None

    def next_fetch(self) -> NextFetch | None:
        if self.state is None or self.leading is not None:
            return None
        return next_fetch(self.epochs, len(self.log), self.state.leader_epoch)

    def serve(self, follower: "Replica", asked: NextFetch, now_ms: int) -> Row:
        """What the leader says, but for the records."""
        leading = self.leading
        if leading is None:
            return Row(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        error = leader_epoch_error(asked.leader_epoch, leading.state.leader_epoch)
        if error:
            return Row(error_code=error)
        diverging = diverging_epoch(
            self.epochs,
            0,
            len(self.log),
            last_fetched_epoch=asked.last_fetched_epoch,
            fetch_offset=asked.offset,
            of_follower=True,
        )
        if isinstance(diverging, ErrorCode):
            return Row(error_code=diverging)
        row = Row(high_watermark=self.ends.high_watermark, log_start_offset=0)
        if diverging is not None:
            epoch, end_offset = diverging
            row.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return row
        if asked.offset > len(self.log):
            return Row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        error = self.ends.fetched(
            follower.id, BrokerEpoch(follower.epoch), asked.offset, 0, now_ms=now_ms
        )
        if error:
            return Row(error_code=error)
        return row


class Partition:
    def __init__(self, min_isr: int) -> None:
        self.store = Store()
        self.now_ms = 0
        self.appends = 0
        self.held: list[Txn] = []  # attempts that the store may still apply
        self.committed: list[Record] = []
        self.watermarks: dict[tuple[int, int], int] = {}
        members = tuple(self.store.start(broker_id) for broker_id in IDS)
        self.replicas = {broker_id: Replica(broker_id, epoch) for broker_id, epoch in members}
        self.store.put(
            KEY,
            PartitionValue(
                IDS, members, 1, LeaderEpoch(0), PartitionEpoch(0), min_isr, last_leader=1
            ),
        )
        for broker_id in IDS:
            self.learn(broker_id)

    @property
    def stored(self) -> tuple[PartitionValue, int]:
        item = self.store.keyspace.get(KEY)
        assert item is not None
        return msgspec.json.decode(item.value, type=PartitionValue), item.mod_revision

    def may_lead(self, broker_id: int) -> bool:
        broker = self.store.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    # What brokers do

    def learn(self, broker_id: int) -> None:
        self.replicas[broker_id].learn(self.store.image, *self.stored, self.now_ms)

    def append(self, broker_id: int, count: int) -> None:
        replica = self.replicas[broker_id]
        if replica.leading is None:
            return
        for _ in range(count):
            self.appends += 1
            replica.extend((replica.leading.state.leader_epoch, self.appends))
            replica.ends.appended(1)

    def fetch(self, broker_id: int, most: int) -> None:
        follower = self.replicas[broker_id]
        asked = follower.next_fetch()
        if asked is None or follower.state is None or follower.state.leader == NO_LEADER:
            return
        leader = self.replicas[follower.state.leader]
        row = leader.serve(follower, asked, self.now_ms)
        follower.answer = (asked, row, leader.log[asked.offset : asked.offset + most])

    def take_answer(self, broker_id: int) -> None:
        follower = self.replicas[broker_id]
        now = follower.next_fetch()
        if follower.answer is None or now is None:
            return
        (asked, row, records), follower.answer = follower.answer, None
        decision = decide(asked, now, row, follower.epochs)
        if decision.action is Action.TRUNCATE:
            follower.cut(decision.offset)
        elif decision.action is Action.APPEND:
            for record in records:
                follower.epochs.observe(LeaderEpoch(record[0]), len(follower.log))
                follower.extend(record)
            follower.ends.leader_committed(row.high_watermark)

    def follow(self, broker_id: int, most: int) -> None:
        """What mostly happens: it knows how things are, and fetches."""
        leader = self.stored[0].leader
        for each in (leader, broker_id):
            if each != NO_LEADER:
                self.learn(each)
        for _ in range(4):
            self.fetch(broker_id, most)
            self.take_answer(broker_id)

    def change_isr(self, broker_id: int) -> None:
        replica = self.replicas[broker_id]
        leading, image = replica.leading, replica.image
        if leading is None:
            return

        def is_eligible(other: int, epoch: int) -> bool:
            broker = image.brokers.get(other)
            return broker is not None and broker.epoch == epoch and broker.is_active

        in_flight = leading.pending
        change = replica.ends.isr_change(self.now_ms, is_eligible)
        if in_flight is not None:
            assert change is None
            assert leading.pending is in_flight
        if change is None:
            return
        txns = isr_txns(image, (broker_id, BrokerEpoch(replica.epoch)), {KEY: change})
        if not txns:
            assert replica.ends.isr_lost(leading.state, leading.revision)
        else:
            (replica.txn,) = txns

    def attempt(self, broker_id: int, fate: str) -> None:
        replica = self.replicas[broker_id]
        leading, txn = replica.leading, replica.txn
        if leading is None or txn is None:
            return
        assert leading.pending is not None
        if fate == "held":
            self.held.append(txn)
            return
        answer = self.store.commit(txn)
        if fate == "unanswered":
            return
        told = read_answer(txn, answer, {KEY: leading.pending})[KEY]
        replica.txn = None
        if isinstance(told, Won):
            replica.ends.isr_won(told.revision)
        elif not replica.ends.isr_lost(told.state, told.revision):  # type: ignore[union-attr]
            replica.step_down()

    def apply_held(self, _: int) -> None:
        if self.held:
            self.store.commit(self.held.pop(0))

    def pass_time(self, _: int, ms: int) -> None:
        self.now_ms += ms

    # What happens to brokers, and what the controller does about it

    def expire(self, broker_id: int) -> None:
        """Its registration ends; the process does not know it yet."""
        self.store.delete(BROKER.key(broker_id))

    def restart(self, broker_id: int, lost: int) -> None:
        self.store.delete(BROKER.key(broker_id))
        epoch = self.store.put(BROKER.key(broker_id), BrokerValue("i", ()))
        self.replicas[broker_id].restart(BrokerEpoch(epoch), lost)

    def fence(self, broker_id: int) -> None:
        fence = self.store.image.fences[broker_id]
        self.store.fence(broker_id, fence.broker_epoch, FENCED)

    def sweep(self, broker_id: int) -> None:
        if self.may_lead(broker_id):
            return
        self.fence(broker_id)
        state, _ = self.stored
        unclean = [broker_id] if self.replicas[broker_id].is_unclean else []
        isr = [member for member in state.isr if member[0] != broker_id]
        if len(isr) < len(state.isr) or set(unclean) & set(state.elr):
            self.store.put(KEY, with_isr(state, isr, unclean=unclean))

    def activate(self, broker_id: int) -> None:
        """Let it in again, if nobody can take it for what it was."""
        self.sweep(broker_id)
        broker = self.store.image.brokers.get(broker_id)
        if broker is not None and not broker.is_active:
            self.store.fence(broker_id, broker.epoch, ACTIVE)
            self.replicas[broker_id].is_unclean = False

    def elect(self, broker_id: int) -> None:
        state, _ = self.stored
        if not self.may_lead(broker_id) or state.leader == broker_id:
            return
        epoch = self.store.image.brokers[broker_id].epoch
        if (broker_id, epoch) in state.isr:
            isr = list(state.isr)
        elif not state.isr and broker_id in state.elr:
            isr = [(broker_id, epoch)]
        else:
            return
        elected = with_isr(state, isr)
        self.store.put(
            KEY,
            msgspec.structs.replace(elected, leader=broker_id, leader_epoch=state.leader_epoch + 1),
        )
        self.learn(broker_id)

    def mend(self, broker_id: int) -> None:
        """All goes well for a while, for all but one; else most runs would end without a leader."""
        others = [each for each in IDS if each != broker_id]
        for each in others:
            if each not in self.store.image.brokers:
                self.restart(each, 0)
            self.activate(each)
        for each in others:
            if self.stored[0].leader == NO_LEADER:
                self.elect(each)
        for each in others:
            self.follow(each, 3)
        for each in others:
            self.change_isr(each)
            self.attempt(each, "answered")

    def set_min_isr(self, _: int, min_isr: int) -> None:
        state, _ = self.stored
        self.store.put(KEY, state.changed(min_isr=min_isr, elr=()))

    # What always holds

    def high_watermarks_never_go_back(self) -> None:
        for replica in self.replicas.values():
            leading = replica.leading
            if leading is None:
                continue
            term = (replica.epoch, leading.state.leader_epoch)
            high_watermark = replica.ends.high_watermark
            assert high_watermark >= self.watermarks.get(term, 0)
            assert high_watermark <= len(replica.log)
            self.watermarks[term] = high_watermark

    def whoever_may_be_elected_has_all_that_is_committed(self) -> None:
        for replica in self.replicas.values():
            leading = replica.leading
            if leading is not None:
                known = replica.log[: replica.ends.high_watermark]
                assert known[: len(self.committed)] == self.committed[: len(known)]
                self.committed += known[len(self.committed) :]
        state, _ = self.stored
        electable = [broker_id for broker_id, epoch in state.isr if self.is_as(broker_id, epoch)]
        if len(state.isr) < effective_min_isr(state):
            electable += [each for each in state.elr if not self.replicas[each].is_unclean]
        for broker_id in electable:
            log = self.replicas[broker_id].log
            assert log[: len(self.committed)] == self.committed, f"broker {broker_id}"

    def is_as(self, broker_id: int, epoch: int) -> bool:
        return self.replicas[broker_id].epoch == epoch


Step = tuple[Callable[..., None], tuple[object, ...]]
STEPS: list[tuple[int, Step]] = [  # how often, what with which value; each of any broker
    (6, (Partition.append, (1,))),
    (3, (Partition.append, (3,))),
    (5, (Partition.follow, (1,))),
    (4, (Partition.follow, (3,))),
    (1, (Partition.fetch, (0,))),
    (3, (Partition.fetch, (2,))),
    (4, (Partition.take_answer, ())),
    (4, (Partition.learn, ())),
    (6, (Partition.change_isr, ())),
    (4, (Partition.attempt, ("answered",))),
    (2, (Partition.attempt, ("unanswered",))),
    (2, (Partition.attempt, ("held",))),
    (2, (Partition.apply_held, ())),
    (1, (Partition.pass_time, (1,))),
    (2, (Partition.pass_time, (LAG_MAX_MS + 1,))),
    (6, (Partition.mend, ())),
    (1, (Partition.expire, ())),
    (1, (Partition.restart, (0,))),
    (1, (Partition.restart, (2,))),
    (1, (Partition.fence, ())),
    (1, (Partition.sweep, ())),
    (2, (Partition.activate, ())),
    (2, (Partition.elect, ())),
    (1, (Partition.set_min_isr, (1,))),
    (1, (Partition.set_min_isr, (2,))),
]
steps = st.tuples(
    st.sampled_from([step for often, step in STEPS for _ in range(often)]), st.sampled_from(IDS)
)


@settings(max_examples=100, deadline=None)
@given(min_isr=st.sampled_from([1, 2, 2]), steps=st.lists(steps, min_size=60, max_size=120))
def test_no_record_that_was_committed_is_missing_where_a_leader_may_come_from(
    min_isr: int, steps: list[tuple[Step, int]]
) -> None:
    partition = Partition(min_isr)
    for (step, values), broker_id in steps:
        step(partition, broker_id, *values)
        partition.high_watermarks_never_go_back()
        partition.whoever_may_be_elected_has_all_that_is_committed()

"""One rule broken at a time: each of these must be found, else the simulation proves nothing about that rule (ablations).

A mutant replaces a function of the product, or a step of the shell that the simulation has in its place.

Those of transactions are in `transactions.mutants`.
"""

from typing import Any

import msgspec
from logfleet.controller.brokers import fencing, leaving, stop_check, unregistering
from logfleet.controller.changes import reassignment_requests, store_writes
from logfleet.controller.terms import convergence
from logfleet.controller.terms.writes import Outbox, TermWrites
from logfleet.log.producers import states as producers
from logfleet.metadata.kinds.cluster import CONTROLLER
from logfleet.metadata.kinds.topics import NO_LEADER
from logfleet.metadata.receipts import Receipt
from logfleet.metadata.store import Get, Put, Txn, TxnResult, UnknownOutcome, exists
from logfleet.node.cluster.registration import writes as registration_writes
from logfleet.node.cluster.registration.machine import BrokerRegistration
from logfleet.replication import (
    election,
    fetch_check,
    follower,
    isr_proposals,
    isr_write,
    leader,
    longest_log,
    reassignment_steps,
)
from logfleet.replication import failsafe as failsafe_rules
from logfleet.replication.fetcher import Fetcher
from logfleet.replication.isr_proposals import IsrProposals
from logfleet.replication.leader import LeaderReplicas
from logfleet.replication.partition_fetch import FetchState
from logfleet.replication.partition_state import with_isr
from logfleet.wire.errors import ErrorCode
from logfleet_operator.clusters import may_i as operators_question
from logfleet_operator.clusters.observed import StopPermission

from broker_image.tests.sim import (
    failsafe,
    isr_writing,
    leading,
    naming,
    node,
    replica,
)
from broker_image.tests.sim.mutant import Mutant
from broker_image.tests.sim.replica_log import Batch
from broker_image.tests.sim.transactions.mutants import OF_TRANSACTIONS


def _not_pending(rule: Any) -> Any:
    def count(self: LeaderReplicas, joining: list[Any]) -> None:
        pending, self.pending = self.pending, None
        rule(self, joining)
        self.pending = pending

    return count


def _below_min_isr(rule: Any) -> Any:
    def committed_end(self: LeaderReplicas, own_end_offset: int) -> Any:
        before, self.is_at_min_isr = self.is_at_min_isr, True
        end_offset = rule(self, own_end_offset)
        self.is_at_min_isr = before
        return end_offset

    return committed_end


def _any_broker_epoch(rule: Any) -> Any:
    def fetched(
        self: LeaderReplicas, each: int, epoch: int, offset: int, start: int, *, now_ms: int
    ) -> Any:
        known = self.followers[each].broker_epoch if each in self.followers else epoch
        return rule(self, each, known, offset, start, now_ms=now_ms)

    return fetched


def _at_high_watermark(_rule: Any) -> Any:
    return lambda self, follower: follower.log_end_offset >= self.ends.high_watermark


def _at_epoch_start(_rule: Any) -> Any:
    return lambda self, follower: follower.log_end_offset >= self.epoch_start_offset


def _decide_anyway(rule: Any) -> Any:
    return lambda _asked, now, row, epochs: rule(now, now, row, epochs)


def _answered_late(rule: Any) -> Any:
    def removed(self: Fetcher[Any], role: Any) -> None:
        fetch = self.partitions.get((role.topic_id, role.index))
        if fetch is not None and fetch.replica is role and fetch.state is FetchState.FETCHING:
            self._session.unwant(fetch.key)  # it asks no more
        else:
            rule(self, role)

    return removed


_FORMER_ROLE = Mutant("what a former role has asked for counts", Fetcher, "removed", _answered_late)


def _truncate_to_high_watermark(rule: Any) -> Any:
    def follow(self: replica.Replica, new_leader: int, leader_epoch: int) -> None:
        is_new = leader_epoch != self.leader_epoch
        rule(self, new_leader, leader_epoch)
        if is_new:
            self.truncate(self.high_watermark)

    return follow


def _admit_first(rule: Any) -> Any:
    return lambda image: (*rule(image), *fencing.admission_steps(image))


def _sweep_may_fail(rule: Any) -> Any:
    def has_written(self: convergence.Convergence, writes: TermWrites) -> bool:
        is_written = bool(rule(self, writes))
        if is_written and self.phase is convergence.Phase.SWEEPING:
            writes.error = None
        return is_written

    return has_written


def _held_for_ever(rule: Any) -> Any:
    held = set()

    def lasts(self: convergence.ElectionHold, image: Any, now_ms: int) -> bool:
        if rule(self, image, now_ms):
            held.add(self)
        return self in held

    return lasts


def _by_content(rule: Any) -> Any:
    def on(self: Receipt, txn: Any) -> Any:
        last = txn.success[-1]
        if not isinstance(last, Put):
            return rule(self, txn)
        self.begin(last.value)
        return Txn(txn.compares, txn.success, (Get(CONTROLLER.prefix), Get(last.key)))

    return on


def _settled_by_a_read(rule: Any) -> Any:
    def attempt(self: isr_writing.IsrWriting, txn: Txn) -> Any:
        reply = yield from rule(self, txn)
        if not isinstance(reply, UnknownOutcome):
            return reply
        store = self._node.fleet.store
        result, _ = yield from store.settle(self._node.host, Txn((), txn.failure, ()))
        return TxnResult(False, result.revision, result.reads)

    return attempt


def _unanswered_is_lost(rule: Any) -> Any:
    def replied(self: Any, write: Any, reply: Any) -> None:
        if not isinstance(reply, UnknownOutcome):
            rule(self, write, reply)
            return
        for proposal in write.proposals.values():
            known = proposal.partition.replicas_state
            proposal.partition.isr_lost(known.state, known.revision)

    return replied


def _follower_forgets_producers(rule: Any) -> Any:
    def append(self: replica.Replica, batch: Batch) -> None:
        if self.leading is not None:
            rule(self, batch)
            return
        producers = self.log.producers
        self.log.producers = type(producers)()
        rule(self, batch)
        self.log.producers = producers

    return append


def _unclean_is_not_sent(rule: Any) -> Any:
    def txn(broker_id: int, value: Any, *others: Any) -> Any:
        return rule(broker_id, _believed(value), *others)

    return txn


def _believed(value: Any) -> Any:
    return msgspec.structs.replace(value, unclean=False, previous_epoch=None)


def _unclean_is_sent_once(rule: Any) -> Any:
    def claim(self: BrokerRegistration, features: Any) -> None:
        if self.epoch:
            self._value = _believed(self._value)
        rule(self, features)

    return claim


def _gone_hold_nothing(rule: Any) -> Any:
    def committed_end(self: LeaderReplicas, own_end_offset: int) -> Any:
        counted = self._counted
        self._counted = [(each, epoch) for each, epoch in counted if each.broker_epoch == epoch]
        end_offset = rule(self, own_end_offset)
        self._counted = counted
        return end_offset

    return committed_end


def _with_its_note(rule: Any) -> Any:
    def copied(self: node.Disk) -> Any:
        copy = rule(self)
        copy.note = self.note
        return copy

    return copied


def _leads_again(rule: Any) -> Any:
    def lead(self: replica.Replica, partition: Any) -> None:
        self.led_epoch = -1
        rule(self, partition)

    return lead


def _without_version(_rule: Any) -> Any:
    return lambda key, _revision: exists(key)


def _eligible_for_ever(rule: Any) -> Any:
    def made(state: Any, isr: Any, **others: Any) -> Any:
        after, members = rule(state, isr, **others), dict(isr)
        kept = tuple(each for each in state.elr if each not in members)
        return msgspec.structs.replace(after, elr=after.elr or kept)

    return made


def _all_replicas(_rule: Any) -> Any:
    return lambda _image, topic, index, going: len({*topic.partitions[index].replicas} - going)


def _whole_isr(_rule: Any) -> Any:
    return lambda _image, topic, index, going: len({*topic.partitions[index].isr_ids} - going)


def _at_once(_rule: Any) -> Any:
    def completed(state: Any) -> Any:
        wanted = reassignment_steps.target(state)
        isr = tuple(member for member in state.isr if member[0] in wanted)
        if not isr or not reassignment_steps.is_reassigning(state):
            return state
        return state.changed(replicas=wanted, adding=(), removing=(), isr=isr, elr=())

    return completed


def _asks_nobody(_rule: Any) -> Any:
    async def all_may(_deciders: Any, _addresses: Any, ids: Any) -> Any:
        return StopPermission(frozenset(ids))

    return all_may


def _asks_about_one(rule: Any) -> Any:
    async def if_the_first_may(deciders: Any, addresses: Any, ids: Any) -> Any:
        first = await rule(deciders, addresses, dict([next(iter(ids.items()))]))
        return StopPermission(frozenset(ids)) if first.pods else first

    return if_the_first_may


_UNCONFIRMED = Mutant(
    "newcomers are let in by the image of the sweep",
    convergence,
    "is_swept",
    lambda _: lambda _elected: True,
)


def _first_candidate(rule: Any) -> Any:
    def longest(state: Any, active: Any, log_ends: Any, *, unclean: bool) -> Any:
        found = rule(state, active, log_ends, unclean=unclean)
        first = longest_log.candidates(state, active, unclean=unclean)
        return found and (first[0], found[1])

    return longest


def _forgets_change(rule: Any) -> Any:
    def suspend(self: Any) -> None:
        rule(self)
        kept = self.suspended
        if kept is not None:
            kept.pending = None
            kept._adopt(kept.state, kept.revision)

    return suspend


def _second_change(rule: Any) -> Any:
    def isr_change(self: LeaderReplicas, now_ms: int, is_eligible: Any) -> Any:
        before, self.pending = self.pending, None
        change = rule(self, now_ms, is_eligible)
        if change is None:
            self.pending = before
        return change

    return isr_change


def _last_leader_first(rule: Any) -> Any:
    def elected(state: Any, present: Any, leader_epoch: int, **named: Any) -> Any:
        after = rule(state, present, leader_epoch, **named)
        if after.leader != NO_LEADER:
            return after
        beside = rule(state.changed(elr=()), present, leader_epoch, **named)
        return beside if beside.leader != NO_LEADER else after

    return elected


def _within_the_epoch(rule: Any) -> Any:
    def replacing(state: Any, *arguments: Any, **named: Any) -> Any:
        after = rule(state, *arguments, **named)
        is_same = after.leader == state.leader
        return after.changed(
            partition_epoch=after.partition_epoch,
            leader_epoch=state.leader_epoch if is_same else after.leader_epoch,
        )

    return replacing


def _at_the_end(rule: Any) -> Any:
    def out_of_range(log_end: int, leader_start: int, leader_end: int) -> Any:
        found = rule(log_end, leader_start, leader_end)
        return msgspec.structs.replace(found, offset=leader_end) if found.offset >= 0 else found

    return out_of_range


def _in_any_order(rule: Any) -> Any:
    def check(self: Any, header: Any) -> Any:
        found = rule(self, header)
        return None if found is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else found

    return check


def _by_name(rule: Any) -> Any:
    def fetched(self: leading.Leading, partition: int) -> Any:
        return rule(self, naming.named(self._node.image, naming.index_of(partition)))

    return fetched


def _as_of_a_consumer(original):
    return lambda *log, **asked: original(*log, **{**asked, "of_follower": False})


MUTANTS = (
    Mutant("an ISR change in flight does not count", LeaderReplicas, "_count", _not_pending, seed=23),
    Mutant("the high watermark moves below min ISR", LeaderReplicas, "committed_end", _below_min_isr, seed=11),
    Mutant("any broker epoch's fetch counts", LeaderReplicas, "fetched", _any_broker_epoch, seed=1),
    Mutant("the ISR grows at the high watermark only", LeaderReplicas, "_is_in_sync", _at_high_watermark, seed=80),
    Mutant("the ISR grows at the epoch's start only", LeaderReplicas, "_is_in_sync", _at_epoch_start, seed=2),
    Mutant("a leader looks for no divergence", fetch_check, "diverging_epoch", lambda _: lambda *_, **__: None, seed=11),
    Mutant("a stale answer counts", follower, "decide", _decide_anyway, beside=(_FORMER_ROLE,), seed=2),
    Mutant("a former leader is fetched from", Fetcher, "removed", lambda _: lambda *_: None, seed=4),
    Mutant("a new follower truncates to its high watermark", replica.Replica, "follow", _truncate_to_high_watermark, seed=1),
    Mutant("a follower truncates to the leader's end only", follower, "truncation_offset", lambda _: lambda _epochs, end, diverging: min(end, diverging[1]), seed=820),
    Mutant("a follower is believed by an epoch that its leader forgot", fetch_check, "diverging_epoch", _as_of_a_consumer, seed=None),
    Mutant("an emptied log counts for the shortest", longest_log, "_emptied_end", lambda _: lambda _end: 0, seed=None),
    Mutant("a follower keeps what its leader deleted", follower, "_cut", lambda _: lambda offset, _start: follower.FollowerStep(follower.Action.TRUNCATE, offset), seed=35),
    Mutant("an unclean start is trusted by the controller", election, "_lost_records", lambda _: lambda _broker: False, seed=3),
    Mutant("an unclean start is not reported", registration_writes, "claim_txn", _unclean_is_not_sent, seed=6),
    Mutant("the next registration does not repeat an unclean start", BrokerRegistration, "_claim", _unclean_is_sent_once, seed=None),
    Mutant("a registration outlives its end in the image", registration_writes, "ended_in", lambda _: lambda *_: "", seed=None),
    Mutant("the previous epoch is not compared", election, "_has_older_disk", lambda _: lambda _broker: False, seed=58),
    Mutant("a copy of a disk in use is believed", node.Disk, "copied", _with_its_note, seed=61),
    Mutant("a registration that has gone holds nothing", LeaderReplicas, "committed_end", _gone_hold_nothing, seed=20),
    Mutant("newcomers are let in before the sweep", convergence, "fence_steps", _admit_first, seed=1),
    Mutant("admission does not wait for the sweep", convergence.Convergence, "has_written", _sweep_may_fail, seed=100, beside=(_UNCONFIRMED,)),
    Mutant("a controller's write without answer is not repeated", Outbox, "retry", lambda _: lambda self, _now_ms: self.drop(), seed=0),
    Mutant("elections are held for ever", convergence.ElectionHold, "lasts", _held_for_ever, seed=6),
    Mutant("a controller's own write is recognised by content", Receipt, "on", _by_content, beside=(_UNCONFIRMED,), seed=None),
    Mutant("an election compares no registration", store_writes, "still_active", lambda _: lambda *_: (), seed=50),
    Mutant("an ISR change compares no registration", isr_write, "still_active", lambda _: lambda *_: (), seed=3),
    Mutant("an ISR change compares no version", isr_write, "modified_at", _without_version, seed=11),
    Mutant("a read settles an unknown transaction", isr_writing.IsrWriting, "_attempt", _settled_by_a_read, seed=None),
    Mutant("an ISR change without an answer counts as lost", IsrProposals, "replied", _unanswered_is_lost, seed=None),
    Mutant("any disk will do for the last leader", longest_log, "has_disk", lambda _: lambda *_: True, seed=8, also=(election,)),
    Mutant("the last leader leads though another log is longer", longest_log, "longest", _first_candidate, seed=73, also=(election,)),
    Mutant("any replica may be elected", election, "_elected", lambda rule: lambda *arguments, **named: rule(*arguments, **{**named, "unclean": True}), seed=2),
    Mutant("a leader is elected in the epoch of the last", election, "_led_by", lambda rule: lambda one, state, epoch: rule(one, state, epoch - 1), seed=0),
    Mutant("a leader begins again in an epoch that has ended", replica.Replica, "lead", _leads_again, seed=0),
    Mutant("followers forget producers", replica.Replica, "append", _follower_forgets_producers, seed=1),
    Mutant("an unclean broker stays eligible", election, "with_isr", lambda _: lambda state, isr, **_: with_isr(state, isr), seed=3),
    Mutant("the ISR grows by who is behind", LeaderReplicas, "_is_in_sync", lambda _: lambda _self, follower: follower.log_end_offset > 0, seed=2),
    Mutant("eligible leaders stay so beside a full ISR", leader, "with_isr", _eligible_for_ever, seed=29, also=(election,)),
    Mutant("may-i counts who is not in sync", stop_check, "_in_sync_without", _all_replicas, seed=18),
    Mutant("may-i counts who drains or is gone", stop_check, "_in_sync_without", _whole_isr, seed=48),
    Mutant("may-i looks for a leader only", stop_check, "effective_min_isr", lambda _: lambda _state: 1, seed=7),
    Mutant("old replicas go before the new ones are in sync", election, "completed", _at_once, seed=5),
    Mutant("another target begins where the last one had come to", reassignment_steps, "origin", lambda _: lambda state: state.replicas, seed=5),
    Mutant("a cancellation may leave too few in sync", reassignment_requests, "effective_min_isr", lambda _: lambda _state: 0, seed=262),
    Mutant("a roll asks nobody", operators_question, "_largest_allowed_part", _asks_nobody, seed=5),
    Mutant("a roll asks about one broker and replaces its zone", operators_question, "_largest_allowed_part", _asks_about_one, seed=5),
    Mutant("a broker is forgotten that partitions name", unregistering, "_held", lambda _: lambda *_: iter(()), seed=545),
    Mutant("a second ISR change is in flight", LeaderReplicas, "isr_change", _second_change, seed=None),
    Mutant("the last leader is elected beside eligible ones", election, "_elected", _last_leader_first, seed=84),
    Mutant("replicas go within a leader epoch", election, "_replacing", _within_the_epoch, seed=None),
    Mutant("an ISR change waits for what other tenants wrote", isr_proposals, "is_shown", lambda _: lambda image, _txn, answer: image.revision >= answer.revision, seed=1260),
    Mutant("one record of a producer is remembered", producers, "BATCHES_REMEMBERED", lambda _: 1, seed=15),
    Mutant("a topic is known by its name", leading.Leading, "_fetched", _by_name, seed=47),
    Mutant("a record may overtake another", producers.ProducerStates, "check", _in_any_order, seed=0),
    Mutant("a follower that was away begins at the end", follower, "out_of_range", _at_the_end, seed=49),
    Mutant("the low watermark is the leader's", LeaderReplicas, "low_watermark", lambda _: lambda _self, start, _is_alive: start, seed=7),
    Mutant("a broker leaves unasked", leaving, "objections", lambda _: lambda *_: iter(()), seed=21),
    Mutant("a leader goes on though nobody vouches for it", failsafe_rules, "is_followed", lambda _: lambda *_: True, seed=None),
    Mutant("a leader stops at its lease's deadline", failsafe_rules, "CONFIRMED_MS", lambda _: -1, seed=None),
    Mutant("any silence of the peers counts", failsafe.Failsafe, "confirms", lambda _: lambda self, _asked: self.is_silent, seed=None),
    Mutant("a suspended partition forgets a change of the ISR in flight", replica.Replica, "suspend", _forgets_change, seed=None),
    *OF_TRANSACTIONS,
)  # fmt: skip
BY_SEED = tuple(each for each in MUTANTS if each.seed is not None)

import msgspec
import pytest
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCED
from logfleet.metadata.kinds.topics import PARTITION, PartitionValue
from logfleet.metadata.store import Put, check_txn
from logfleet.replication.isr_write import (
    CHANGES_MAX,
    Alone,
    Lost,
    Won,
    is_shown,
    isr_txns,
    read_answer,
)
from logfleet.replication.leader import IsrChange
from logfleet.replication.partition_state import Member, with_isr
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

DRAINING = "draining"
UUID = "AAAAAAAAAAAAAAAAAAAAAQ"
KEY = PARTITION.key((uuids.from_text(UUID), 0))


def shrunk(store, me: Member, other: Member, key: str = KEY) -> IsrChange:
    state = PartitionValue(
        (me[0], other[0]), (me, other), me[0], LeaderEpoch(3), PartitionEpoch(7), 1
    )
    revision = store.put(key, state)
    return IsrChange(with_isr(state, [me]), revision, ())


def expanded(store, me: Member, added: Member, key: str = KEY) -> IsrChange:
    state = PartitionValue((me[0], added[0]), (me,), me[0], LeaderEpoch(3), PartitionEpoch(7), 1)
    revision = store.put(key, state)
    return IsrChange(with_isr(state, [me, added]), revision, (added,))


def written(store, key: str = KEY) -> PartitionValue:
    return msgspec.json.decode(store.keyspace.get(key).value, type=PartitionValue)


def test_a_change_is_written_if_nothing_has_changed(store) -> None:
    me, other = store.start(1), store.start(2)
    changes = {KEY: expanded(store, me, other)}
    (txn,) = isr_txns(store.image, me, changes)
    answer = store.commit(txn)
    assert read_answer(txn, answer, changes) == {KEY: Won(answer.revision)}
    assert written(store) == changes[KEY].state


@pytest.mark.parametrize("who", ["leader", "member"])
@pytest.mark.parametrize("what", ["registered again", "gone", FENCED, DRAINING])
def test_a_change_is_lost_if_whoever_it_rests_on_has_changed_and_stays_so(store, who, what) -> None:
    me, other = store.start(1), store.start(2)
    change = expanded(store, me, other)
    image = store.image
    (txn,) = isr_txns(image, me, {KEY: change})
    broker_id, epoch = me if who == "leader" else other
    if what == "registered again":
        store.start(broker_id)
    elif what == "gone":
        store.delete(BROKER.key(broker_id))
    else:
        store.fence(broker_id, epoch, what)
    base = written(store)
    answer = store.commit(txn)
    assert read_answer(txn, answer, {KEY: change}) == {KEY: Lost(base, change.revision)}
    assert not is_shown(image, txn, answer), "it would be lost again"
    assert is_shown(store.image, txn, answer)
    store.fence(*me, ACTIVE)
    store.fence(*other, ACTIVE)
    assert not store.commit(txn).succeeded  # also of an attempt that the store held until now
    assert written(store) == base


def test_a_member_that_leaves_need_not_be_there(store) -> None:
    me, other = store.start(1), store.start(2)
    change = shrunk(store, me, other)
    store.delete(BROKER.key(2))
    (txn,) = isr_txns(store.image, me, {KEY: change})
    assert store.commit(txn).succeeded


def test_a_change_that_came_too_late_brings_what_is_there(store) -> None:
    me, other = store.start(1), store.start(2)
    change = shrunk(store, me, other)
    (txn,) = isr_txns(store.image, me, {KEY: change})
    there = change.state.changed(leader=2, leader_epoch=4)
    revision = store.put(KEY, there)
    answer = store.commit(txn)
    assert read_answer(txn, answer, {KEY: change}) == {KEY: Lost(there, revision)}
    newest = msgspec.structs.replace(answer, revision=revision + 1)
    assert is_shown(store.image, txn, newest), "what is newer belongs to others"


def test_a_change_that_an_earlier_attempt_wrote_brings_itself(store) -> None:
    me, other = store.start(1), store.start(2)
    change = shrunk(store, me, other)
    (txn,) = isr_txns(store.image, me, {KEY: change})
    revision = store.commit(txn).revision
    assert read_answer(txn, store.commit(txn), {KEY: change}) == {KEY: Lost(change.state, revision)}


def test_a_partition_that_was_deleted_is_told(store) -> None:
    me, other = store.start(1), store.start(2)
    change = shrunk(store, me, other)
    (txn,) = isr_txns(store.image, me, {KEY: change})
    store.delete(KEY)
    assert read_answer(txn, store.commit(txn), {KEY: change}) == {KEY: Lost(None, 0)}


def test_of_several_changes_only_those_that_lost_are_lost(store) -> None:
    me, other = store.start(1), store.start(2)
    first, second = (
        PARTITION.key((uuids.from_text(UUID), 1)),
        PARTITION.key((uuids.from_text(UUID), 2)),
    )
    changes = {key: shrunk(store, me, other, key) for key in (first, second)}
    (txn,) = isr_txns(store.image, me, changes)
    there = changes[first].state.changed(min_isr=2)
    revision = store.put(first, there)
    told = read_answer(txn, store.commit(txn), changes)
    assert told == {first: Lost(there, revision), second: Alone()}
    (txn,) = isr_txns(store.image, me, {second: changes[second]})
    assert store.commit(txn).succeeded


def test_a_leader_that_is_on_its_way_out_still_writes(store) -> None:
    me, other = store.start(1, DRAINING), store.start(2)
    assert len(isr_txns(store.image, me, {KEY: expanded(store, me, other)})) == 1


@pytest.mark.parametrize("state", [FENCED, DRAINING])
def test_a_member_that_the_image_does_not_hold_for_active_is_not_sent(store, state: str) -> None:
    me, other, third = store.start(1), store.start(2, state), store.start(3)
    good, bad = PARTITION.key((uuids.from_text(UUID), 1)), PARTITION.key((uuids.from_text(UUID), 2))
    changes = {good: expanded(store, me, third, good), bad: expanded(store, me, other, bad)}
    (txn,) = isr_txns(store.image, me, changes)
    assert txn.success == (Put(good, PARTITION.encode(changes[good].state)),)


def test_a_member_of_another_registration_is_not_sent(store) -> None:
    me, other = store.start(1), store.start(2)
    change = expanded(store, me, other)
    store.start(2)
    assert isr_txns(store.image, me, {KEY: change}) == []
    store.delete(BROKER.key(2))
    assert isr_txns(store.image, me, {KEY: change}) == []


def test_a_leader_that_is_fenced_or_registered_anew_writes_nothing(store) -> None:
    me, other = store.start(1), store.start(2)
    change = shrunk(store, me, other)
    assert isr_txns(store.image, (1, me[1] + 1), {KEY: change}) == []
    store.fence(*me, FENCED)
    assert isr_txns(store.image, me, {KEY: change}) == []
    store.fence(*me, ACTIVE)
    store.delete(BROKER.key(1))
    assert isr_txns(store.image, me, {KEY: change}) == []
    assert isr_txns(store.image, (4, BrokerEpoch(4)), {KEY: change}) == []


def test_changes_are_packed_by_their_number_and_their_compares(store) -> None:
    me = store.start(1)
    others = [store.start(broker_id) for broker_id in range(2, 102)]
    few = {
        PARTITION.key((uuids.from_text(UUID), n)): shrunk(store, me, others[n]) for n in range(50)
    }
    assert [len(txn.success) for txn in isr_txns(store.image, me, few)] == [CHANGES_MAX, 20, 10]
    many = {}
    for n in range(20):
        added = tuple(others[5 * n : 5 * n + 5])
        key = PARTITION.key((uuids.from_text(UUID), n))
        replicas = (1, *(broker_id for broker_id, _ in added))
        state = PartitionValue(replicas, (me,), 1, LeaderEpoch(3), PartitionEpoch(7), 1)
        revision = store.put(key, state)
        many[key] = IsrChange(with_isr(state, [me, *added]), revision, added)
    txns = isr_txns(store.image, me, many)
    for txn in txns:
        check_txn(txn)
        assert store.commit(txn).succeeded
    assert [len(txn.success) for txn in txns] == [11, 9]

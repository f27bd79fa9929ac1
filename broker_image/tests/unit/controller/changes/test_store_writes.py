import pytest
from logfleet.controller.changes.store_writes import controls, pack, partition_step
from logfleet.metadata.kinds.brokers import FENCE, FENCED, FenceValue
from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.metadata.packing import Step
from logfleet.metadata.receipts import RECEIPT_BYTES_MAX, check_with_receipt
from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Put,
    Txn,
    absent,
    exists,
    modified_at,
)
from logfleet.replication.partition_state import still_active
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

FIRST, REST = absent("a"), exists("a")


def step(number: int, *compares) -> Step:
    return Step(Put(f"k/{number}", b""), compares)


def test_little_is_one_transaction_that_compares_the_controller_epoch():
    txns = pack(9, [step(1), step(2, FIRST)], first=[REST])
    puts = Put("k/1", b""), Put("k/2", b"")
    assert txns == (Txn((controls(9), REST, FIRST), puts),)


def test_nothing_is_no_transaction():
    assert pack(9, []) == ()


def test_writes_are_cut_at_the_limit_and_every_part_compares_the_controller_epoch():
    txns = pack(9, [step(number) for number in range(300)], first=[FIRST], rest=[REST])
    assert [len(txn.success) for txn in txns] == [127, 127, 46]
    assert [txn.compares for txn in txns] == [
        (controls(9), FIRST),
        (controls(9), REST),
        (controls(9), REST),
    ]
    assert [write for txn in txns for write in txn.success] == [
        Put(f"k/{number}", b"") for number in range(300)
    ]


@pytest.mark.parametrize("key_length", [10, 4_000, 200_000])
@pytest.mark.parametrize("value_bytes", [0, 9_000, 300_000])
def test_bytes_are_cut_at_the_limit_too(key_length, value_bytes):
    keys_written = [f"{n}".zfill(key_length) for n in range(150)]
    steps = [Step(Put(key, bytes(value_bytes)), (modified_at(key, 1),)) for key in keys_written]
    txns = pack(9, steps, first=[FIRST], rest=[REST])
    for txn in txns:
        check_with_receipt(txn)
    assert [write for txn in txns for write in txn.success] == [each.write for each in steps]
    step_bytes = 2 * key_length + value_bytes + 16
    full = (TXN_BYTES_MAX - RECEIPT_BYTES_MAX - 100) // step_bytes
    assert len(txns) <= -(-150 // min(full, TXN_OPERATIONS_MAX - 3))


def test_a_partition_is_written_only_while_its_leader_is_the_broker_that_was_elected(cluster):
    cluster.start(1)
    value = PartitionValue(
        (1,), ((1, cluster.image.brokers[1].epoch),), 1, LeaderEpoch(0), PartitionEpoch(0), 1
    )
    written = partition_step(cluster.image, "part/U/0", value, 7)
    assert written.compares == (modified_at("part/U/0", 7), *still_active(cluster.image, 1))
    (txn,) = pack(cluster.epoch, [partition_step(cluster.image, "part/U/0", value)])
    cluster.put(FENCE.key(1), FenceValue(BrokerEpoch(0), FENCED))
    assert not cluster.commit(txn)


def test_a_partition_without_leader_compares_only_itself(cluster):
    value = PartitionValue((1,), (), NO_LEADER, LeaderEpoch(0), PartitionEpoch(0), 1)
    assert partition_step(cluster.image, "part/U/0", value, 7).compares == (
        modified_at("part/U/0", 7),
    )


def test_a_controller_that_was_replaced_writes_nothing(cluster):
    (txn,) = pack(cluster.epoch, [step(1)])
    cluster.elect(2)
    assert not cluster.commit(txn)

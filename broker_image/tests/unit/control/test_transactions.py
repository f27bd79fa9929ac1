from logfleet.control.transactions import (
    Step,
    attempted,
    controls,
    pack,
    partition_step,
    still_active,
)
from logfleet.metadata import keys
from logfleet.metadata.keys import NO_LEADER, PartitionValue
from logfleet.metadata.store import (
    TXN_OPERATIONS_MAX,
    Put,
    Txn,
    absent,
    check_txn,
    exists,
    modified_at,
)

FIRST, REST = absent("a"), exists("a")


def step(number: int, *compares) -> Step:
    return Step(Put(f"k/{number}", b""), compares)


def test_little_is_one_transaction_that_compares_the_controller_epoch():
    txns = pack(9, [step(1), step(2, FIRST)], first=[REST])
    assert txns == (Txn((controls(9), REST, FIRST), (Put("k/1", b""), Put("k/2", b""))),)


def test_nothing_is_no_transaction():
    assert pack(9, []) == ()


def test_writes_are_cut_at_the_limit_and_every_part_compares_the_controller_epoch():
    txns = pack(9, [step(number) for number in range(300)], first=[FIRST], rest=[REST])
    assert [len(txn.success) for txn in txns] == [128, 128, 44]
    assert [txn.compares for txn in txns] == [
        (controls(9), FIRST),
        (controls(9), REST),
        (controls(9), REST),
    ]
    assert [write for txn in txns for write in txn.success] == [
        Put(f"k/{number}", b"") for number in range(300)
    ]


def test_compares_are_cut_at_the_limit_too():
    steps = [step(n, modified_at(f"a/{n}", 1), modified_at(f"b/{n}", 1)) for n in range(100)]
    txns = pack(9, steps)
    for txn in txns:
        check_txn(txn)
    assert [len(txn.compares) for txn in txns] == [127, 75]
    assert [len(txn.success) for txn in txns] == [63, 37]


def test_writes_are_cut_where_a_transaction_would_be_too_large():
    steps = [
        Step(Put(f"k/{n}" + "x" * 30_000, b"y" * 100), (absent(f"c/{n}" + "x" * 9_000),))
        for n in range(100)
    ]
    txns = pack(9, steps)
    for txn in txns:
        check_txn(attempted(txn))
    assert [len(txn.success) for txn in txns] == [26, 26, 26, 22]
    assert [write for txn in txns for write in txn.success] == [step.write for step in steps]


def test_a_shared_compare_is_sent_once_per_transaction():
    shared = modified_at("fence/1", 5)
    txns = pack(9, [step(number, shared) for number in range(200)])
    assert [txn.compares for txn in txns] == [(controls(9), shared)] * 2
    assert max(len(txn.success) for txn in txns) == TXN_OPERATIONS_MAX


def test_a_partition_is_written_only_while_its_leader_is_the_broker_that_was_elected(cluster):
    cluster.start(1)
    value = PartitionValue((1,), ((1, cluster.image.brokers[1].epoch),), 1, 0, 0, 1)
    written = partition_step(cluster.image, "part/U/0", value, 7)
    assert written.compares == (modified_at("part/U/0", 7), *still_active(cluster.image, 1))
    (txn,) = pack(cluster.epoch, [partition_step(cluster.image, "part/U/0", value)])
    cluster.put(keys.fence(1), keys.FenceValue(0, keys.FENCED))
    assert not cluster.commit(txn)


def test_a_partition_without_leader_compares_only_itself(cluster):
    value = PartitionValue((1,), (), NO_LEADER, 0, 0, 1)
    assert partition_step(cluster.image, "part/U/0", value, 7).compares == (
        modified_at("part/U/0", 7),
    )


def test_a_controller_that_was_replaced_writes_nothing(cluster):
    (txn,) = pack(cluster.epoch, [step(1)])
    cluster.elect(2)
    assert not cluster.commit(txn)

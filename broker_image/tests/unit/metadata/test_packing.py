from logfleet.metadata.packing import Step, pack_steps
from logfleet.metadata.store import (
    TXN_BYTES_MAX,
    TXN_OPERATIONS_MAX,
    Compare,
    Put,
    Txn,
    absent,
    check_txn,
    exists,
    modified_at,
)

FIRST, REST = absent("a"), exists("a")


def step(number: int, *compares: Compare) -> Step:
    return Step(Put(f"k/{number}", b""), compares)


def pack(steps: list[Step], **given: int) -> list[Txn]:
    return list(pack_steps(steps, first=(FIRST,), rest=(REST,), **given))


def test_nothing_is_no_transaction():
    assert pack([]) == []


def test_steps_keep_their_order_and_each_transaction_has_its_compares():
    txns = pack([step(number) for number in range(5)], steps_max=2)
    assert [txn.compares for txn in txns] == [(FIRST,), (REST,), (REST,)]
    assert [len(txn.success) for txn in txns] == [2, 2, 1]
    writes = [write for txn in txns for write in txn.success]
    assert writes == [Put(f"k/{number}", b"") for number in range(5)]


def test_writes_and_compares_are_cut_at_the_limit():
    assert [len(txn.success) for txn in pack([step(n) for n in range(300)])] == [128, 128, 44]
    txns = pack([step(n, modified_at(f"a/{n}", 1), modified_at(f"b/{n}", 1)) for n in range(100)])
    for txn in txns:
        check_txn(txn)
    assert [len(txn.compares) for txn in txns] == [127, 75]
    assert [len(txn.success) for txn in txns] == [63, 37]


def test_entries_can_be_left_free_in_each_list():
    assert [len(txn.success) for txn in pack([step(n) for n in range(255)], reserved=1)] == [
        127,
        127,
        1,
    ]
    steps = [step(n, modified_at(f"a/{n}", 1)) for n in range(127)]
    assert [len(txn.compares) for txn in pack(steps, reserved=1)] == [127, 2]


def test_bytes_are_cut_at_the_limit_and_some_can_be_left_free():
    steps = [Step(Put(f"{n}", bytes(TXN_BYTES_MAX // 4))) for n in range(8)]
    assert [len(txn.success) for txn in pack(steps)] == [3, 3, 2]
    assert [len(txn.success) for txn in pack(steps, reserved_bytes=TXN_BYTES_MAX // 4)] == [2] * 4


def test_what_is_too_large_by_itself_stands_alone():
    large = Step(Put("large", bytes(TXN_BYTES_MAX)))
    assert [len(txn.success) for txn in pack([step(1), large, step(2)])] == [1, 1, 1]


def test_a_shared_compare_is_sent_once_per_transaction():
    shared = modified_at("fence/1", 5)
    txns = pack([step(number, shared) for number in range(200)])
    assert [txn.compares for txn in txns] == [(FIRST, shared), (REST, shared)]
    assert [len(txn.success) for txn in txns] == [TXN_OPERATIONS_MAX, 72]

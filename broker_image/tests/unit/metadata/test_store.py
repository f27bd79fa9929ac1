import pytest
from logfleet.metadata.store import (
    TXN_OPERATIONS_MAX,
    Delete,
    DeletePrefix,
    Get,
    Put,
    Txn,
    absent,
    check_txn,
)


def test_full_lists_are_taken_and_one_more_is_not() -> None:
    compares = [absent(f"{number}") for number in range(TXN_OPERATIONS_MAX)]
    deletes = [Delete(compare.key) for compare in compares]
    check_txn(Txn(compares, deletes, deletes))
    with pytest.raises(ValueError, match="129 entries"):
        check_txn(Txn([*compares, absent("more")]))


def test_the_two_lists_may_name_the_same_key() -> None:
    check_txn(Txn([absent("a")], [Put("a", b"")], [Get("a")]))


def test_neighbouring_prefixes_and_keys_stand_side_by_side() -> None:
    check_txn(Txn(success=[DeletePrefix("a/"), DeletePrefix("b/"), Put("a", b""), Delete("ab/c")]))

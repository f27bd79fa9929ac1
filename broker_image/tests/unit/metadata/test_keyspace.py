import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.store import (
    Delete,
    Deleted,
    DeletePrefix,
    KeyValue,
    LeaseNotFound,
    Put,
    Txn,
    WatchBatch,
    absent,
    exists,
)

KEYS = st.sampled_from(["a", "a/1", "a/2", "b", "b/1"])
OPERATIONS = st.one_of(
    st.builds(Put, KEYS, st.binary(max_size=2)),
    st.builds(Delete, KEYS),
    st.builds(DeletePrefix, st.sampled_from(["a", "a/", "b", "none"])),
)


def done(keyspace: Keyspace, *operations) -> WatchBatch | None:
    _, batch = keyspace.evaluate(Txn(success=operations))
    if batch:
        keyspace.apply(batch)
    return batch


def test_evaluating_changes_nothing() -> None:
    keyspace = Keyspace()
    result, batch = keyspace.evaluate(Txn([absent("a")], [Put("a", b"")]))
    assert (result.revision, keyspace.revision, keyspace.get("a")) == (2, 1, None)
    assert batch == WatchBatch(2, (KeyValue("a", b"", 2, 2, 1),))


def test_a_revision_is_applied_once_and_in_order() -> None:
    keyspace = Keyspace()
    _, batch = keyspace.evaluate(Txn(success=[Put("a", b"")]))
    assert batch is not None
    keyspace.apply(batch)
    with pytest.raises(AssertionError):
        keyspace.apply(batch)


@given(st.lists(OPERATIONS, max_size=30))
def test_replaying_the_batches_gives_the_same_keyspace(operations) -> None:
    keyspace, replayed = Keyspace(), Keyspace()
    model: dict[str, bytes] = {}
    for operation in operations:
        if batch := done(keyspace, operation):
            replayed.apply(batch)
        match operation:
            case Put(key, value):
                model[key] = value
            case Delete(key):
                model.pop(key, None)
            case DeletePrefix(prefix):
                model = {k: v for k, v in model.items() if not k.startswith(prefix)}
    assert keyspace.range("") == replayed.range("")
    assert {item.key: item.value for item in keyspace.range("").items} == model


def test_a_lease_ends_with_its_keys_and_takes_no_more() -> None:
    keyspace = Keyspace()
    lease, other = keyspace.grant(), keyspace.grant()
    done(keyspace, Put("b", b"", lease), Put("a", b"", lease), Put("c", b"", other))
    assert keyspace.has_lease(lease)
    keyspace.end(lease)
    assert not keyspace.has_lease(lease)
    assert keyspace.without_lease(lease) == WatchBatch(3, (Deleted("a"), Deleted("b")))
    assert keyspace.without_leases() == WatchBatch(3, tuple(map(Deleted, "abc")))
    assert keyspace.without_lease(99) is None
    with pytest.raises(LeaseNotFound):
        keyspace.evaluate(Txn(success=[Put("d", b"", lease)]))


def test_a_loaded_keyspace_goes_on_from_its_revision() -> None:
    keyspace = Keyspace([KeyValue("a", b"x", 3, 7, 2)], revision=9)
    result, batch = keyspace.evaluate(Txn([exists("a")], [Put("a", b"y")]))
    assert result.succeeded
    assert batch == WatchBatch(10, (KeyValue("a", b"y", 3, 10, 3),))

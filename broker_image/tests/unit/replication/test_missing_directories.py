from logfleet.metadata.image import Directories, Partition
from logfleet.metadata.kinds.topics import NO_LEADER, PARTITION
from logfleet.replication.missing_directories import LogDirectories, is_new, may_begin_empty
from logfleet.wire import uuids


def on_record(*ids: str) -> Directories:
    return Directories(frozenset(ids), 7)


def test_what_is_on_record_and_not_there_is_missing() -> None:
    local = LogDirectories(frozenset({"a", "new"}))
    assert local.missing(on_record("a", "b")) == {"b"}
    assert local.missing(on_record("a")) == set()
    assert local.missing(None) == set(), "an earlier version recorded nothing"


def test_nothing_leaves_the_record_but_what_is_to_be_forgotten() -> None:
    local = LogDirectories(frozenset({"a", "new"}))
    assert local.to_record(on_record("a", "b", "c"), ()) == {"a", "b", "c", "new"}
    assert local.to_record(on_record("a", "b", "c"), {"b"}) == {"a", "c", "new"}
    assert local.to_record(None, ()) == {"a", "new"}


def test_without_a_record_a_bad_directory_may_hold_anything() -> None:
    local = LogDirectories(frozenset({"a"}), frozenset({"/path"}))
    assert local.missing(None) == {"/path"}
    assert local.to_record(None, ()) == {"a", "/path"}
    assert local.missing(on_record("a")) == set(), "it was never used"


def test_a_partition_is_new_in_the_registration_that_it_was_made_for(cluster) -> None:
    cluster.start(1)
    cluster.create("t")
    epoch = cluster.image.brokers[1].epoch
    (partition,) = cluster.topic("t").partitions
    assert is_new(partition, 1, epoch)
    assert not is_new(partition, 1, None)
    assert not is_new(partition, 2, epoch)
    cluster.start(2)
    cluster.create("two", replication_factor=2)
    (both,) = cluster.topic("two").partitions
    assert all(is_new(both, each, cluster.image.brokers[each].epoch) for each in (1, 2))
    cluster.stop(1)
    cluster.start(1)
    (partition,) = cluster.topic("t").partitions
    assert not is_new(partition, 1, cluster.image.brokers[1].epoch)


def test_a_lost_replica_may_begin_empty_where_another_leads_and_nobody_counts_on_it(
    cluster,
) -> None:
    """Who is in the ISR or an eligible leader is counted on (KIP-966): it may be elected for what it has."""
    cluster.start(1, 2, 3)
    assignments = ((0, (1, 2, 3)),)
    cluster.create("t", -1, assignments=assignments, configs={"min.insync.replicas": "2"})

    def state() -> Partition:
        (found,) = cluster.topic("t").partitions
        assert isinstance(found, Partition)
        return found

    assert not may_begin_empty(state(), 3), "it is in sync, in its last life perhaps"
    cluster.stop(3)
    assert may_begin_empty(state(), 3)
    assert not may_begin_empty(state(), 1), "it leads"
    cluster.stop(2)
    assert state().elr == (2,)
    assert not may_begin_empty(state(), 2), "it is an eligible leader"
    assert may_begin_empty(state(), 3)
    cluster.put(
        PARTITION.key((uuids.from_text(cluster.uuid("t")), 0)),
        state().changed(leader=NO_LEADER, isr=(), elr=()),
    )
    assert state().last_leader == 1
    assert not may_begin_empty(state(), 1), "the last leader may have to lead again"
    assert not may_begin_empty(state(), 3), "there is nobody to fill it"
    cluster.put(
        PARTITION.key((uuids.from_text(cluster.uuid("t")), 0)), state().changed(given_up=True)
    )
    assert may_begin_empty(state(), 3), "somebody has declared that nothing is left"

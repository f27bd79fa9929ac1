from logfleet.control.log_directories import LogDirectories, is_new
from logfleet.metadata.image import Directories


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

"""Interleavings in which the store does not answer, or not all. L leads a partition, F follows, C controls and has no replica of it."""

from broker_image.tests.sim.scenario import Scenario


def leases_outlive_the_store() -> None:
    """Without quorum no lease ends, and what follows is no election of everybody."""
    s = Scenario()
    s.acked(2)
    s.fleet.store.outage(8_000)
    s.after(7_000)
    assert len(s.fleet.store.image.brokers) == 3
    s.after(5_000)
    s.rests()


def a_fleet_goes_on_while_the_store_is_away() -> None:
    """For as long as it takes: nobody is elected, and nobody has to be."""
    s = Scenario(factor=3, min_isr=2)
    s.acked(1)
    before = s.states
    s.fleet.store.outage(60_000)
    for _ in range(5):
        s.after(10_000)
        s.acked(1)
    s.after(15_000)
    assert [each.leader_epoch for each in s.states] == [each.leader_epoch for each in before]
    s.rests()
    assert s.end_offset(s.leader) == 6


def a_leader_that_alone_is_cut_off_from_the_store_stops_once_its_follower_leads() -> None:
    """L hears nothing of its end; F does, and fetches from it no more."""
    s = Scenario()
    s.acked(1)
    for way in ("in", "out"):
        s.cut_store(s.leader, way)
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.after(4_000)
    assert s.leader.leading.replicas[s.index].leading is None
    s.acked(1)
    for way in ("in", "out"):
        s.mend_store(s.leader, way)
    s.rests()


def a_leader_that_was_replaced_goes_on_by_no_later_silence_of_its_peers() -> None:
    """L is cut off alone, and F is elected. Then the store goes away for all of them."""
    s = Scenario()
    s.acked(1)
    for way in ("in", "out"):
        s.cut_store(s.leader, way)
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.after(4_000)
    s.fleet.store.outage(20_000)
    s.after(10_000)
    assert s.leader.leading.replicas[s.index].leading is None
    assert s.follower.leading.replicas[s.index].leading is not None
    for way in ("in", "out"):
        s.mend_store(s.leader, way)
    s.rests()


def a_change_in_flight_counts_for_a_suspended_partition() -> None:
    """KIP-497: L's change brings F in, L does not hear of it and is suspended; F lags.

    L goes on only when its image shows the change.
    """
    s = Scenario(lag_max_ms=4_000)
    s.drop_follower()
    s.lose_answers(s.leader, 1, 1, 1, 1, 1)
    s.hold_watch(s.leader)
    s.mend(s.follower, s.leader)
    s.until(lambda: s.isr == [s.leader.id, s.follower.id], "the change is made")
    s.cut(s.follower, s.leader)
    s.cut(s.leader, s.controller)
    s.fleet.store.outage(6_000)
    replica = s.leader.leading.replicas[s.index]
    s.until(lambda: replica.suspended is not None, "L is suspended")
    s.produce(3, is_acks_all=False)
    s.after(8_000)
    assert s.high_watermark(s.leader) == 1
    s.mend(s.leader, s.controller)
    s.rests()

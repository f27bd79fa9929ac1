"""Interleavings of registrations that end. L leads a partition, F follows, C controls and has no replica of it."""

from logfleet.metadata.kinds.topics import NO_LEADER

from broker_image.tests.sim.scenario import Scenario


def every_registration_says_that_its_disk_may_lack_records() -> None:
    """KIP-966: F lost the end of its log, and its first registration ends before the controller has seen it."""
    s = Scenario(min_isr=2)
    s.acked(5)
    s.power_loss(s.follower)
    s.until(lambda: s.partition.elr == (s.follower.id,), "F is an eligible leader")
    s.cut_store(s.controller, "in")
    s.follower.start()
    s.until(lambda: s.follower.id in s.fleet.store.image.brokers, "F is registered")
    s.end_lease(s.follower)
    s.until(lambda: s.follower.id in s.fleet.store.image.brokers, "F is registered again")
    s.cut(s.follower, s.leader)
    s.mend_store(s.controller, "in")
    s.until(lambda: s.fleet.store.image.brokers[s.follower.id].is_active, "F is let in")
    assert s.partition.elr == ()
    s.kill(s.leader)
    s.after(5_000)
    assert s.partition.leader == NO_LEADER
    s.rests()
    assert s.end_offset(s.leader) == 5


def a_broker_that_is_fenced_registers_again() -> None:
    """Its lease lives, and so the store never says that its registration has ended."""
    s = Scenario(factor=3, min_isr=2)
    s.acked(2)
    before = s.follower.epoch
    s.fence(s.follower)
    s.until(lambda: s.follower.epoch not in (None, before), "F has another broker epoch")
    s.until(lambda: s.follower.id in s.isr, "F is in sync again")
    s.rests()


def a_registration_whose_answer_was_lost_is_found() -> None:
    """F's claim is done, twice unanswered; it must not take itself for another process."""
    s = Scenario(factor=3, min_isr=2)
    s.acked(2)
    s.lose_answers(s.follower, 1, 1)
    s.fence(s.follower)
    s.until(lambda: not s.fleet.store.scripted[s.follower.host.name], "the answers are lost")
    s.until(lambda: s.follower.id in s.isr, "F is in sync again")
    held = s.fleet.store.image.brokers[s.follower.id]
    assert held.epoch == s.follower.epoch
    s.rests()

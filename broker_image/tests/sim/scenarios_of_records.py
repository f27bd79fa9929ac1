"""Interleavings about what logs hold: records, producers, deleted records, topics made again. L leads a partition, F follows."""

from logfleet.wire.errors import ErrorCode

from broker_image.tests.sim import naming
from broker_image.tests.sim.faults import Fault
from broker_image.tests.sim.messages import Produce, Produced
from broker_image.tests.sim.scenario import Scenario


def a_replica_that_was_gone_begins_with_nothing() -> None:
    """The other one's replica goes and comes again, empty, and L sees both at once."""
    s = Scenario(factor=3, lag_max_ms=4_000)
    s.acked(3)
    s.hold_watch(s.leader)
    s.cut(s.other, s.leader)
    s.reassign(s.leader, s.follower)
    s.until(lambda: s.index not in s.other.disk.logs, "its log has gone")
    s.reassign(s.leader, s.follower, s.other)
    s.hold_watch(s.leader, is_held=False)
    s.after(2_500)
    assert s.other.id not in s.isr
    s.rests()


def five_records_of_a_producer_are_recognised_when_they_come_again() -> None:
    """KIP-98: the answers to all that are in flight are lost, and so the producer sends them again."""
    s = Scenario()
    s.acked(1)
    s.fleet.net.block(s.leader.host.name, "client")
    s.produce(5)
    s.until(lambda: s.high_watermark(s.leader) == 6, "they are committed")
    s.fleet.net.reset("client", s.leader.host.name)
    s.fleet.net.unblock(s.leader.host.name, "client")
    s.until(lambda: s.producers[s.index, True].is_idle, "the producer is answered")
    assert s.end_offset(s.leader) == 6
    s.rests()


def a_record_that_overtakes_another_is_refused() -> None:
    """KIP-98: the second record of a producer came, the third one did not, and here is the fourth."""
    s, answers = Scenario(), list[Produced]()
    s.acked(2)
    producer = s.fleet.checker.history(s.index).committed[-1].producer
    late = Produce(s.index, "the fourth", is_acks_all=True, producer=producer, sequence=3)
    s.leader.leading.produce(late, answers.append)
    s.after(1_000)
    assert answers == [Produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
    s.rests()


def a_follower_that_was_away_begins_where_its_leaders_log_starts() -> None:
    """KAFKA-3123: what F would fetch next has been deleted; the records behind that have not."""
    s = Scenario()
    s.acked(2)
    s.kill(s.follower)
    s.acked(4)
    s.leader.leading.delete_records(s.index, 4)
    s.follower.start()
    s.until(lambda: s.follower.id in s.isr, "F is in sync")
    log = s.follower.disk.logs[s.index]
    assert (log.start_offset, log.end_offset) == (4, 6)
    s.rests()


def records_are_deleted_once_no_live_replica_has_them() -> None:
    """KIP-107: F does not hear of it at first."""
    s = Scenario()
    s.acked(4)
    s.cut(s.leader, s.follower)
    s.leader.leading.delete_records(s.index, 3)
    s.after(1_000)
    s.mend(s.leader, s.follower)
    s.until(lambda: s.follower.disk.logs[s.index].start_offset == 3, "F has deleted them, too")
    s.after(1_000)
    assert s.kernel.labels["records were deleted in all live replicas"] == 1
    s.rests()


def a_topic_that_is_made_again_has_no_record_of_the_old_one() -> None:
    """KIP-516: F does not hear that the topic was deleted and made again, and goes on fetching."""
    s = Scenario()
    s.acked(3)
    s.hold_watch(s.follower)
    s.faults.begin(Fault(0, "create_again", 0, 0))
    s.until(lambda: not s.faults.is_making, "the topic is made again")
    s.produce(1, is_acks_all=False)
    s.after(2_000)
    assert s.end_offset(s.follower) == 3
    s.rests()
    made = naming.number(naming.topic_id(1), s.index)
    assert [each.disk.logs[made].end_offset for each in (s.leader, s.follower)] == [1, 1]
    assert s.index not in s.follower.disk.logs


def a_repeated_batch_is_recognised_by_the_next_leader() -> None:
    """KIP-98: L dies with the acknowledgement; the producer sends the batch again, to F."""
    s = Scenario()
    s.acked(2)
    s.fleet.net.block(s.leader.host.name, "client")
    s.produce(1)
    s.until(lambda: s.high_watermark(s.leader) == 3, "it is committed")
    s.kill(s.leader)
    s.end_lease(s.leader)
    s.until(lambda: s.producers[s.index, True].is_idle, "the producer is answered")
    assert s.end_offset(s.follower) == 3
    s.rests()


def a_follower_keeps_what_is_above_its_high_watermark() -> None:
    """KIP-101: C's replica has a record and has not heard that it is committed, when F is elected."""
    s = Scenario(factor=3)
    other = s.controller
    s.acked(3)
    s.produce(1)
    s.until(lambda: s.end_offset(other) == 4, "C has the record")
    s.cut(s.leader, other)
    s.until(lambda: s.high_watermark(s.leader) == 4, "it is committed")
    s.kill(s.leader)
    s.end_lease(s.leader)
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.after(1_000)
    assert s.end_offset(other) == 4
    s.rests()


def a_stale_answer_of_the_old_leader_changes_nothing() -> None:
    """L's answer is on its way to C's replica when F is elected; it comes after F's own records."""
    s = Scenario(factor=3)
    other = s.controller
    s.acked(2)
    s.cut(s.leader, other)
    s.produce(1, is_acks_all=False)
    s.after(20)
    s.fence(s.leader)
    s.end_lease(s.leader)
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.until(lambda: s.follower.leading.replicas[s.index].leading, "F leads")
    s.produce(1, is_acks_all=False)
    s.after(500)
    s.mend(s.leader, other)
    s.rests()


def a_former_leader_that_ends_where_its_leaders_log_starts_begins_again_empty() -> None:
    """F deletes all records in the place of one that only L had; then L leads again.

    The producer of L's record sends it once more. No broker may know it by its number.
    """
    s, answers = Scenario(), list[Produced]()
    s.acked(2)
    s.cut(s.follower, s.leader)
    s.produce(1)
    s.until(lambda: s.end_offset(s.leader) == 3, "L has a record that F has not")
    s.fleet.net.block("client", s.follower.host.name)
    s.kill(s.leader)
    s.end_lease(s.leader)
    s.until(lambda: s.partition.leader == s.follower.id, "F is elected")
    s.until(lambda: s.follower.leading.replicas[s.index].leading, "F leads")
    s.follower.leading.produce(Produce(s.index, "of F", is_acks_all=False), answers.append)
    assert answers == [Produced(ErrorCode.NONE, 2)]
    s.until(lambda: s.high_watermark(s.follower) == 3, "F has committed another in its place")
    s.follower.leading.delete_records(s.index, 3)
    s.mend(s.follower, s.leader)
    s.leader.start()
    s.until(lambda: s.leader.id in s.isr, "L is in sync")
    s.kill(s.follower)
    s.end_lease(s.follower)
    s.until(lambda: s.partition.leader == s.leader.id, "L is elected")
    s.until(lambda: s.producers[s.index, True].is_idle, "the producer is answered")
    log = s.leader.disk.logs[s.index]
    assert (log.start_offset, log.end_offset) == (3, 4)
    s.rests()


def a_last_leader_whose_records_were_all_deleted_leads_again() -> None:
    """L alone is in sync and loses power; its log has no leader epoch then.

    F's log has one, and ends before.
    """
    s = Scenario()
    s.acked(2)
    s.drop_follower()
    s.acked(3)
    s.leader.leading.delete_records(s.index, 6)
    s.leader.flush()
    s.power_loss(s.leader)
    log = s.leader.disk.logs[s.index]
    assert (log.start_offset, log.end_offset, log.epochs.entries) == (6, 6, ())
    assert s.end_offset(s.follower) == 2
    s.until(lambda: not s.partition.has_leader, "nobody leads")
    s.leader.start()
    s.until(lambda: s.partition.has_leader, "somebody leads")
    assert s.partition.leader == s.leader.id
    s.rests()
    assert s.follower.disk.logs[s.index].start_offset == 6

"""What the checker reports after an unclean election: all but what that election has cost."""

import pytest

from broker_image.tests.sim.history import PartitionHistory
from broker_image.tests.sim.kernel import SimulationError
from broker_image.tests.sim.replica_log import Batch
from broker_image.tests.sim.scenario import Scenario

BEFORE, AFTER = 0, 2
"""Leader epochs: of the leader that lost records, and of its unclean election."""


@pytest.fixture
def s() -> Scenario:
    """L alone is in sync, loses the last of its records in a power loss, and leads again."""
    s = Scenario()
    s.acked(3)
    s.drop_follower()
    s.after(1_000)
    s.acked(2)
    s.power_loss(s.leader)
    s.until(lambda: not s.partition.has_leader, "nobody leads")
    s.leader.start()
    s.until(lambda: s.partition.has_leader, "L leads again")
    s.rests()
    assert s.partition.leader_epoch == AFTER
    assert s.end_offset(s.leader) == 4
    return s


def history(s: Scenario) -> PartitionHistory:
    return s.fleet.checker.history(s.index)


def test_a_wrong_acknowledgement_is_reported_after_an_unclean_election(s: Scenario) -> None:
    checker = s.fleet.checker
    checker.acked(s.index, 4, "what it has cost", BEFORE)
    with pytest.raises(SimulationError, match="I1"):
        checker.acked(s.index, 3, "what it has kept", BEFORE)
    with pytest.raises(SimulationError, match="I1"):
        checker.acked(s.index, 4, "what comes after it", AFTER)


def test_a_wrong_read_is_reported_after_an_unclean_election(s: Scenario) -> None:
    checker, cost = s.fleet.checker, Batch(4, BEFORE, "all")
    checker.consumed(s.index, 4, (cost,), BEFORE)
    with pytest.raises(SimulationError, match="I16"):
        checker.consumed(s.index, 3, (Batch(3, BEFORE, "other"),), BEFORE)
    with pytest.raises(SimulationError, match="I16"):
        checker.consumed(s.index, 4, (cost,), AFTER)


def test_a_reader_is_sent_back_only_behind_what_an_unclean_election_kept(s: Scenario) -> None:
    checker = s.fleet.checker
    checker.went_back(s.index, 5, 4, BEFORE)
    with pytest.raises(SimulationError, match="I16"):
        checker.went_back(s.index, 4, 3, BEFORE)
    with pytest.raises(SimulationError, match="I16"):
        checker.went_back(s.index, 5, 4, AFTER)


def test_a_cut_of_what_is_committed_is_reported_after_an_unclean_election(s: Scenario) -> None:
    checker = s.fleet.checker
    checker.truncated(s.index, s.follower, [Batch(4, BEFORE, "all")], 5)
    with pytest.raises(SimulationError, match="I6"):
        checker.truncated(s.index, s.follower, [Batch(3, BEFORE, "all")], 4)
    s.acked(1)
    with pytest.raises(SimulationError, match="I6"):
        checker.truncated(s.index, s.follower, history(s).committed[-1:], 5)


def test_one_power_loss_excuses_no_later_loss_of_that_disk(s: Scenario) -> None:
    assert all(each.disk.logs[s.index].lost_from is None for each in (s.leader, s.follower))
    s.drop_follower()
    s.acked(1)
    s.kill(s.leader)
    s.until(lambda: not s.partition.has_leader, "nobody leads")
    s.leader.disk.logs[s.index].truncate_to(5)
    s.leader.start()
    with pytest.raises(SimulationError, match="I3"):
        s.after(10_000)


def test_a_partition_stays_without_a_leader_only_if_the_last_leaders_disk_is_gone() -> None:
    s = Scenario()
    s.drop_follower()
    s.kill(s.leader)
    s.until(lambda: not s.partition.has_leader, "nobody leads")
    s.faults.new_disk(s.follower, 100)
    s.after(5_000)
    assert s.partition.leader == -1
    assert not s.has_converged()
    s.leader.new_disk()
    s.leader.start()
    s.after(10_000)
    assert s.partition.leader == -1
    assert s.has_converged()

import pytest
from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.brokers import DRAINING
from logfleet.metadata.kinds.topics import NO_LEADER, PartitionValue
from logfleet.replication.election import next_state, replicas_to_query
from logfleet.replication.longest_log import SILENT, LogEnds
from logfleet.types import BrokerEpoch, LeaderEpoch

from broker_image.tests.unit.replication.election_rig import (
    ALL,
    LED,
    MIN_ISR,
    NEW,
    after,
    broker,
    brokers,
    gone,
)

LOST = gone().changed(elr=())
"""Nobody is eligible: all three lost power, and 1 led last."""
TABLE = [
    ("the longest of one epoch", {1: (4, 90), 2: (4, 100), 3: (4, 95)}, 2),
    ("the latest epoch before the length", {1: (4, 90), 2: (3, 200), 3: (2, 300)}, 1),
    ("the last leader of those that reach as far", {1: (4, 90), 2: (4, 90), 3: (4, 90)}, 1),
    ("not one that is silent", {1: (4, 90), 2: SILENT, 3: (4, 95)}, 3),
    ("an empty log before a silent one", {1: (-1, 0), 2: SILENT, 3: SILENT}, 1),
    ("the last leader whose records were all deleted", {1: (-1, 50), 2: (4, 49), 3: SILENT}, 1),
    ("one that reaches as far as all that was deleted", {1: (-1, 50), 2: (3, 51), 3: (4, 49)}, 2),
    ("not another of which nothing is left", {1: (4, 90), 2: (-1, 95), 3: (4, 80)}, 1),
    ("nobody while the last leader is silent", {1: SILENT, 2: (4, 100), 3: (4, 95)}, NO_LEADER),
    ("nobody while a replica has not been asked", {1: (4, 90), 2: (4, 100)}, NO_LEADER),
]


def ends(**by_id: tuple[int, int]) -> LogEnds:
    """As all of `ALL` answer, by the names b1 to b3."""
    return {
        (int(name[1:]), BrokerEpoch(10 * int(name[1:]))): (LeaderEpoch(epoch), end)
        for name, (epoch, end) in by_id.items()
    }


@pytest.mark.parametrize(
    "logs, leader", [each[1:] for each in TABLE], ids=[each[0] for each in TABLE]
)
def test_where_nobody_is_eligible_the_longest_log_leads(logs, leader) -> None:
    log_ends = ends(**{f"b{each}": end for each, end in logs.items()})
    value = next_state(LOST, ALL, min_isr=MIN_ISR, log_ends=log_ends)
    if leader == NO_LEADER:
        assert value is None
        return
    assert value is not None
    assert (value.leader, value.isr, value.elr) == (leader, ((leader, 10 * leader),), ())
    assert value.recovering, "what nobody has any more is lost"
    assert value.leader_epoch == LOST.leader_epoch + 1


def test_who_has_to_be_asked_is_every_active_replica_once_the_last_leader_is_back() -> None:
    def asked(state: PartitionValue, *there: Broker, unclean: bool = False, **options) -> list[int]:
        found = replicas_to_query(state, brokers(*there), unclean=unclean, **options)
        return [each.id for each in found]

    assert asked(LOST, *ALL.values()) == [1, 2, 3]
    assert asked(LOST, broker(3), broker(1)) == [1, 3]
    assert asked(LOST, broker(2), broker(3)) == [], "1 is waited for"
    assert asked(LOST, broker(2), broker(3), unclean=True) == [2, 3]
    assert asked(LOST.changed(given_up=True), broker(2), broker(3)) == [2, 3]
    assert asked(LOST, broker(1), broker(2, state=DRAINING)) == [], "a single one needs no asking"
    assert asked(LOST, *ALL.values(), offline=[2]) == [1, 3]
    assert asked(LOST, *ALL.values(), offline=[1]) == [], "the disk that is missed may come back"
    assert asked(LOST, broker(1, 11, directories=("new",)), broker(2), broker(3)) == []
    assert asked(gone(), *ALL.values()) == [], "an eligible leader holds everything"
    assert asked(LED, *ALL.values(), unclean=True) == [], "it has a leader"


def test_nobody_leads_uncleanly_while_one_that_may_have_the_longest_log_is_not_let_in_yet() -> None:
    """Not even the last leader, and not where anybody may lead."""
    for unclean in (False, True):
        for there in (brokers(broker(1)), ALL):
            value = next_state(LOST, there, min_isr=MIN_ISR, unclean=unclean, log_ends=None)
            assert value is None


def test_what_an_earlier_registration_answered_counts_for_nothing() -> None:
    log_ends = ends(b1=(4, 90), b2=(4, 100), b3=(4, 95))
    there = {**ALL, 2: broker(2, 21)}
    assert next_state(LOST, there, min_isr=MIN_ISR, log_ends=log_ends) is None
    assert after(LOST, *there.values(), log_ends={**log_ends, (2, 21): (4, 80)}).leader == 3


def test_where_anybody_may_lead_the_longest_that_answers_does_without_the_last_leader() -> None:
    there = (broker(2), broker(3))
    silent = ends(b2=SILENT, b3=SILENT)
    assert after(LOST, *there, unclean=True, log_ends=ends(b2=(4, 7), b3=(4, 8))).leader == 3
    assert after(LOST, *there, unclean=True, log_ends=silent).leader == 2, "rather than nobody"
    given_up = LOST.changed(given_up=True)
    state = after(given_up, *there, log_ends=ends(b2=(4, 7), b3=(4, 8)))
    assert (state.leader, state.given_up) == (3, False)


RESTORED = gone().changed(restored=True)
"""From a backup: all were in sync when it was taken."""


def test_after_a_restoring_the_longest_of_all_that_were_in_sync_leads_and_nothing_is_lost() -> None:
    log_ends = ends(b1=(4, 90), b2=(4, 100), b3=(4, 95))
    assert next_state(RESTORED, brokers(broker(1)), min_isr=MIN_ISR) is None, (
        "2 and 3 may have more"
    )
    assert next_state(RESTORED, ALL, min_isr=MIN_ISR) is None, "they have to be asked"
    state = after(RESTORED, *ALL.values(), log_ends=log_ends)
    assert (state.leader, state.recovering, state.restored) == (2, False, False)
    assert state.elr == (), "the others may lack what was committed"
    silent = {**log_ends, (3, BrokerEpoch(30)): SILENT}
    assert next_state(RESTORED, ALL, min_isr=MIN_ISR, log_ends=silent) is None
    state = after(RESTORED, *ALL.values(), log_ends=silent, unclean=True)
    assert (state.leader, state.recovering) == (2, True), "somebody wants it so"


def test_after_a_restoring_a_replica_that_was_not_in_sync_leads_if_its_log_is_the_longest() -> None:
    """It caught up after the backup, and the others fell behind."""
    state = RESTORED.changed(elr=(1, 2))
    log_ends = ends(b1=(4, 90), b2=(4, 90), b3=(4, 95))
    assert after(state, *ALL.values(), log_ends=log_ends).leader == 3


def test_after_a_restoring_nobody_waits_for_who_says_that_the_partition_moved_away() -> None:
    lacking = brokers(broker(1), broker(2), broker(3))
    left = after(RESTORED, *lacking.values(), offline=[3])
    assert (left.leader, left.elr) == (NO_LEADER, (1, 2))
    state = after(left, *lacking.values(), offline=[3], log_ends=ends(b1=(4, 90), b2=(4, 95)))
    assert (state.leader, state.recovering) == (2, False)
    alone = after(RESTORED, *lacking.values(), offline=[2, 3])
    assert (alone.leader, alone.recovering) == (1, False)


def test_after_a_restoring_who_lost_records_is_not_waited_for() -> None:
    """All three lost power: then it is as if nobody were eligible."""
    state = RESTORED
    for each in (1, 2, 3):
        state = after(state, *(broker(each, 5, NEW, unclean=True) for each in (each,)))
    assert (state.elr, state.restored) == ((), True)
    log_ends = ends(b1=(4, 90), b2=(4, 95), b3=(4, 93))
    state = after(state, *ALL.values(), log_ends=log_ends)
    assert (state.leader, state.recovering) == (2, True)

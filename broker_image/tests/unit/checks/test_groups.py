"""Each finding of groups: in a fleet that has it, and not in a healthy one."""

from logfleet.checks import groups
from logfleet.checks.finding import Severity
from logfleet.checks.snapshot import Group, Member

from broker_image.tests.unit.checks.fleets import (
    fleet,
    found,
    group,
    partition,
    remedies,
    topic,
)

BEHIND = {("orders", 0): 40, ("orders", 1): 100}


def idle(**fields: object) -> Group:
    return group("etl old", state="Empty", members=(), committed=BEHIND, **fields)


def test_a_group_without_members_that_has_records_to_read_is_found() -> None:
    waiting = fleet(groups=(idle(),))
    assert found(groups.idle_group, waiting) == [("etl old", "no members, and 60 records to read")]
    assert remedies(groups.idle_group, waiting) == ["logfleet group delete 'etl old'"]
    (finding,) = groups.idle_group.findings(waiting)
    assert finding.severity is Severity.HINT


def test_it_is_a_warning_once_records_wait_for_a_week() -> None:
    old = topic("orders", partition(0, week_old=41), partition(1, week_old=100))
    (finding,) = groups.idle_group.findings(fleet(old, groups=(idle(),)))
    assert finding.severity is Severity.WARNING
    assert finding.sentence.endswith("60 records to read, the oldest for a week or longer")
    read = topic("orders", partition(0, week_old=40), partition(1, week_old=100))
    (finding,) = groups.idle_group.findings(fleet(read, groups=(idle(),)))
    assert finding.severity is Severity.HINT


def test_a_group_without_members_that_has_read_all_is_not_found() -> None:
    done = group("job", state="Empty", members=(), committed={("orders", 0): 100})
    gone = group(
        "gone", state="Empty", members=(), committed={("no-topic", 0): 1, ("orders", 9): 1}
    )
    unknown = group("unknown", state="Empty", members=(), committed=None)
    blind = topic("orders", partition(0, end=None))
    assert found(groups.idle_group, fleet(groups=(done, gone, unknown))) == []
    assert found(groups.idle_group, fleet(blind, groups=(done,))) == []


def test_members_that_never_commit_are_found() -> None:
    silent = group("s", committed={("orders", 1): 5})
    assert found(groups.never_commits, fleet(groups=(silent,))) == [
        ("s", "reads orders-0 and orders-2 and has committed nothing there")
    ]


def test_nothing_has_to_be_committed_where_there_is_nothing_to_read() -> None:
    empty = topic("orders", *(partition(each, begin=100) for each in range(3)))
    silent = group("s", committed={})
    assert found(groups.never_commits, fleet(empty, groups=(silent,))) == []
    assert found(groups.never_commits, fleet(groups=(group(committed=None),))) == []
    other = Member("app", "/10.0.0.1", {"deleted": (0,)})
    assert found(groups.never_commits, fleet(groups=(group(members=(other,)),))) == []
    assert found(groups.never_commits, fleet(groups=(group(members=None),))) == []


def test_a_group_that_is_an_hour_behind_is_found() -> None:
    slow = topic("orders", partition(0, hour_old=41), partition(1, hour_old=100))
    late = fleet(slow, groups=(group("g", committed=BEHIND),))
    assert found(groups.far_behind, late) == [
        ("g", "60 records behind, an hour or longer in orders-0")
    ]
    assert remedies(groups.far_behind, late) == ["logfleet group describe g"]
    assert found(groups.far_behind, fleet(slow, groups=(idle(),))) == []


def test_records_that_were_deleted_unread_are_counted_by_topic() -> None:
    short = topic("orders", partition(0, begin=50), partition(1, begin=101, end=101))
    missed = fleet(short, groups=(group("g", committed=BEHIND),))
    assert found(groups.deleted_unread, missed) == [
        ("g", "11 records of orders deleted before the group read them")
    ]


def test_an_offset_beyond_the_end_is_found() -> None:
    new = topic("orders", partition(0, end=30), partition(1))
    ahead = fleet(new, groups=(group("g", committed=BEHIND),))
    assert found(groups.beyond_the_end, ahead) == [("g", "its offset is beyond the end of orders")]
    assert remedies(groups.beyond_the_end, ahead) == [
        "logfleet group reset-offsets g -t orders --to end --execute"
    ]


def test_members_without_partitions_are_found() -> None:
    busy, spare = Member("a", "", {"orders": (0, 1, 2)}), Member("b", "", {"orders": ()})
    crowded = fleet(groups=(group("g", members=(busy, spare, spare)),))
    assert found(groups.idle_members, crowded) == [("g", "2 of 3 members have no partition")]
    moving = fleet(groups=(group("g", members=(busy, spare), state="PreparingRebalance"),))
    assert found(groups.idle_members, moving) == []

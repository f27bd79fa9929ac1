"""Checks of consumer groups: idle ones, ones that fall behind, offsets that lead nowhere. PURE."""

import shlex
from collections.abc import Iterator
from typing import Final

from logfleet.checks.finding import Check, Found, Severity, check, counted, listed
from logfleet.checks.snapshot import Group, Part, Partition, Snapshot

EMPTY: Final = "Empty"


def committed(fleet: Snapshot, group: Group) -> Iterator[tuple[str, int, Partition]]:
    """The group's committed offsets with their partitions: name, offset, partition."""
    for (topic, index), offset in (group.committed or {}).items():
        partition = fleet.partition(topic, index)
        if partition is not None:
            yield topic, offset, partition


def lag_of(fleet: Snapshot, group: Group) -> int:
    """Records that the group has not read, where both ends are known."""
    found = committed(fleet, group)
    return sum(max(0, each.end - offset) for _, offset, each in found if each.end is not None)


@check("LF301", Severity.HINT, Part.GROUPS)
def idle_group(fleet: Snapshot) -> Iterator[Found]:
    """Groups without members.

    Nobody reads for the group, and records are waiting. It is a job between two runs, one that has
    failed, or one that is gone for good. A warning means that records wait for a week or longer.

    Start its consumers. If it is not needed any more, delete it: that removes its offsets.
    """
    for group in fleet.groups:
        lag = lag_of(fleet, group) if group.state == EMPTY else 0
        if lag:
            is_old = any(
                each.week_old is not None and offset < each.week_old
                for _, offset, each in committed(fleet, group)
            )
            since = ", the oldest for a week or longer" if is_old else ""
            sentence = f"no members, and {counted(lag, 'record')} to read{since}"
            remedy = f"logfleet group delete {shlex.quote(group.name)}"
            yield Found(group.name, sentence, remedy, Severity.WARNING if is_old else None)


@check("LF302", Severity.WARNING, Part.GROUPS, Part.OFFSETS)
def never_commits(fleet: Snapshot) -> Iterator[Found]:
    """Members that never commit.

    Members read partitions that have records, and the group has no offset of them. After a restart
    they begin at the end or at the beginning again (`auto.offset.reset`): records are skipped or
    read twice.

    Let the application commit, or `enable.auto.commit` be true. An application that keeps its
    offsets elsewhere, as Spark does, has no members here. In the first seconds after a start it
    passes by itself.
    """
    for group in fleet.groups:
        read = [
            (topic, index)
            for member in group.members or ()
            for topic, indexes in member.partitions.items()
            for index in indexes
        ]
        lacking = [
            f"{topic}-{index}"
            for topic, index in sorted(read)
            if group.committed is not None
            and (topic, index) not in group.committed
            and (partition := fleet.partition(topic, index)) is not None
            and (partition.end or 0) > (partition.begin or 0)
        ]
        if lacking:
            sentence = f"reads {listed(lacking)} and has committed nothing there"
            yield Found(group.name, sentence, f"logfleet group describe {shlex.quote(group.name)}")


@check("LF303", Severity.WARNING, Part.GROUPS, Part.TIMES)
def far_behind(fleet: Snapshot) -> Iterator[Found]:
    """Groups that are far behind.

    The group has members, and records wait for an hour or longer, by their timestamps. It is too
    slow, or one of its members is stuck.

    Compare the lag of its partitions: if one of them stands out, its member or its key is the
    reason, else add members, up to the number of partitions.
    """
    for group in fleet.groups:
        late = [
            f"{topic}-{each.index}"
            for topic, offset, each in committed(fleet, group)
            if each.hour_old is not None and offset < each.hour_old
        ]
        if late and group.state != EMPTY:
            lag = counted(lag_of(fleet, group), "record")
            sentence = f"{lag} behind, an hour or longer in {listed(sorted(late))}"
            yield Found(group.name, sentence, f"logfleet group describe {shlex.quote(group.name)}")


@check("LF304", Severity.WARNING, Part.GROUPS, Part.OFFSETS)
def deleted_unread(fleet: Snapshot) -> Iterator[Found]:
    """Records deleted unread.

    The group's offset is below the first record that is left: retention, or `logfleet records
    delete`, was faster than the group. What is in between is lost to it. Its consumers go on where
    `auto.offset.reset` says.

    Give the topic a longer retention than the group's longest pause.
    """
    for group in fleet.groups:
        missed: dict[str, int] = {}
        for topic, offset, each in committed(fleet, group):
            if each.begin is not None and offset < each.begin:
                missed[topic] = missed.get(topic, 0) + each.begin - offset
        for topic, count in missed.items():
            sentence = f"{counted(count, 'record')} of {topic} deleted before the group read them"
            yield Found(group.name, sentence, f"logfleet config describe topic {topic} --all")


@check("LF305", Severity.WARNING, Part.GROUPS, Part.OFFSETS)
def beyond_the_end(fleet: Snapshot) -> Iterator[Found]:
    """Offsets beyond the end.

    The group has committed an offset that the partition does not have yet. The topic was deleted
    and created again, or acknowledged records were lost in an unclean election. Until that offset
    is written its consumers get nothing, or begin where `auto.offset.reset` says.

    Reset the group to the end or to the beginning.
    """
    for group in fleet.groups:
        wrong = {
            topic
            for topic, offset, each in committed(fleet, group)
            if each.end is not None and offset > each.end
        }
        for topic in sorted(wrong):
            sentence = f"its offset is beyond the end of {topic}"
            name = shlex.quote(group.name)
            remedy = f"logfleet group reset-offsets {name} -t {topic} --to end --execute"
            yield Found(group.name, sentence, remedy)


@check("LF306", Severity.HINT, Part.GROUPS)
def idle_members(fleet: Snapshot) -> Iterator[Found]:
    """Members without partitions.

    There are more members than partitions, so some have nothing to read. They are a reserve, or not
    needed.

    Add partitions (records of a key may then be in two partitions), or stop some members.
    """
    for group in fleet.groups:
        members = group.members or ()
        idle = sum(not any(member.partitions.values()) for member in members)
        if group.state == "Stable" and 0 < idle < len(members):
            sentence = f"{idle} of {len(members)} members have no partition"
            yield Found(group.name, sentence, f"logfleet group describe {shlex.quote(group.name)}")


CHECKS: Final[tuple[Check, ...]] = (
    idle_group,
    never_commits,
    far_behind,
    deleted_unread,
    beyond_the_end,
    idle_members,
)

"""Classic groups: joining, static members, every request in every state. Source: GroupMetadataManager, ClassicGroup."""

from typing import Any, Final

from logfleet.wire import messages as m

from e2e.compare import requests as r
from e2e.compare.corpus import Corpus
from e2e.compare.side import Side

CORPUS: Final = Corpus("groups")
SHORT: Final[dict[str, Any]] = {"rebalance_timeout_ms": 1_000}
"""So that a group does not wait for long for who does not come back."""


def group_of(side: Side) -> str:
    return f"{side.prefix}group"


def describe(side: Side, *groups: str, version: int = 5) -> None:
    side.ask(m.DescribeGroupsRequest(groups=list(groups)), version)


def joined(side: Side, group: str, on: str, version: int = 5, **fields: Any) -> tuple[str, int]:
    """Join over that connection, alone; member id and generation."""
    answer = side.ask(r.join(group, **fields), version, on=on)
    if answer.error_code:
        answer = side.ask(r.join(group, answer.member_id, **fields), version, on=on)
    return answer.member_id, answer.generation_id


def pair(side: Side, **fields: Any) -> tuple[str, str, int]:
    """Two members of a stable group, on connections a and b; the first leads. Their ids and the generation."""
    group = group_of(side)
    first, _ = joined(side, group, "a", **fields)
    second = side.ask(r.join(group, **fields), 5, on="b").member_id
    request = r.join(group, second, **fields)
    side.send(request, 5, on="b")
    wait_for_rebalance(side, group)
    generation = side.ask(r.join(group, first, **fields), 5, on="a").generation_id
    side.answer(request, 5, on="b")
    assigned = {first: b"first", second: b"second"}
    side.ask(r.sync(group, first, generation, assigned), 5, on="a")
    side.ask(r.sync(group, second, generation, {}), 5, on="b")
    return first, second, generation


def wait_for_rebalance(side: Side, group: str) -> None:
    """Return when the coordinator has taken in what another connection has sent."""
    while True:
        (found,) = side.get(m.DescribeGroupsRequest(groups=[group]), 5).groups
        if found.group_state == "PreparingRebalance":
            return


# --- joining


@CORPUS.versions("JoinGroup")
def joining_alone(side: Side, version: int) -> None:
    group = group_of(side)
    member, generation = joined(side, group, "a", version)
    describe(side, group)
    side.ask(r.join(group, member), version, on="a")
    side.ask(r.sync(group, member, generation, {member: b"all"}), min(version, 5), on="a")
    describe(side, group)
    side.ask(r.join(group, member), version, on="a")
    describe(side, group)


@CORPUS.versions("JoinGroup")
def what_cannot_join(side: Side, version: int) -> None:
    group = group_of(side)
    side.ask(r.join(""), version)
    side.ask(r.join(group, "unknown"), version)
    side.ask(r.join(group, protocol_type=""), version)
    side.ask(r.join(group, protocols=()), version)
    for session in (5_999, 6_000, 1_800_000, 1_800_001, -1):
        own = f"{group}-{session}"
        side.ask(r.join(own, session_timeout_ms=session), version, on=f"s#{session}")
    describe(side, group)


@CORPUS.case
def members_that_do_not_fit(side: Side) -> None:
    group = group_of(side)
    member, _ = joined(side, group, "a", protocols=("range", "roundrobin"))
    side.ask(r.join(group, protocol_type="connect"), 5, on="b")
    side.ask(r.join(group, protocols=("sticky",)), 5, on="b")
    side.ask(r.join(group, "unknown"), 5, on="b")
    side.ask(r.join(group, member, protocol_type="connect"), 5, on="b")
    side.ask(r.join(group, member, protocols=("sticky",)), 5, on="b")


@CORPUS.case
def two_members(side: Side) -> None:
    first, second, generation = pair(side)
    group = group_of(side)
    describe(side, group)
    for member in (first, second):
        side.ask(r.heartbeat(group, member, generation), on=member[:4])
    side.ask(r.join(group, second), 5, on="b")  # a follower that only missed the answer
    side.ask(r.leave(group, second), 3, on="b")
    side.ask(r.heartbeat(group, first, generation), on="a")
    describe(side, group)


@CORPUS.case
def protocols_are_voted_for(side: Side) -> None:
    group = group_of(side)
    first, _ = joined(side, group, "a", protocols=("a", "b", "c"))
    waiting = []
    for name, offered in (("b", ("c", "b")), ("c", ("b", "c"))):
        member = side.ask(r.join(group, protocols=offered), 5, on=name).member_id
        request = r.join(group, member, offered)
        side.send(request, 5, on=name)
        wait_for_rebalance(side, group)
        waiting.append((name, request))
    side.ask(r.join(group, first, ("a", "b", "c")), 5, on="a")
    for name, request in waiting:
        side.answer(request, 5, on=name)


@CORPUS.case
def a_member_that_does_not_come_back_is_dropped(side: Side) -> None:
    group = group_of(side)
    first, _ = joined(side, group, "a", **SHORT)
    second = side.ask(r.join(group, **SHORT), 5, on="b").member_id
    side.ask(r.join(group, second, **SHORT), 5, on="b")
    side.ask(r.heartbeat(group, first, 1), on="a")
    describe(side, group)


@CORPUS.case
def changed_metadata_makes_a_rebalance(side: Side) -> None:
    group = group_of(side)
    first, second, generation = pair(side)
    other = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"other")]
    usual = r.join(group, second)
    usual.protocols = other
    side.send(usual, 5, on="b")
    wait_for_rebalance(side, group)
    side.ask(r.heartbeat(group, first, generation), on="a")
    side.ask(r.sync(group, first, generation, {}), on="a")
    describe(side, group)
    side.ask(r.join(group, first), 5, on="a")
    side.answer(usual, 5, on="b")
    describe(side, group)


# --- the other requests in each state


def ask_everything(side: Side, group: str, member: str, generation: int) -> None:
    """What a member may send besides joining and leaving, right and wrong."""
    topic = side.topic(f"t-{len(side.seen)}")
    for who in (member, "unknown", ""):
        for which in (generation, generation + 1, generation - 1, -1):
            side.ask(r.heartbeat(group, who, which))
            side.ask(r.commit(group, topic, 3, member=who, generation=which), 9)
    side.ask(r.sync(group, "unknown", generation, {}))
    side.ask(r.sync(group, member, generation + 1, {}))
    side.ask(r.sync(group, member, generation, {}, protocol_type="connect"))
    side.ask(r.sync(group, member, generation, {}, protocol_name="sticky"))
    for version in (4, 5):
        request = r.sync(group, member, generation + 7, {}, protocol_type=None, protocol_name=None)
        side.ask(request, version)
    describe(side, group)
    side.ask(m.ListGroupsRequest())
    side.ask(m.DeleteGroupsRequest(groups_names=[group]))


@CORPUS.case
def requests_to_an_unknown_group(side: Side) -> None:
    ask_everything(side, group_of(side), "unknown", 1)
    side.ask(r.leave(group_of(side), "unknown"))


@CORPUS.case
def requests_while_assigning(side: Side) -> None:
    group = group_of(side)
    member, generation = joined(side, group, "a")
    ask_everything(side, group, member, generation)


@CORPUS.case
def requests_to_a_stable_group(side: Side) -> None:
    group = group_of(side)
    member, generation = joined(side, group, "a")
    side.ask(r.sync(group, member, generation, {member: b"x"}))
    ask_everything(side, group, member, generation)


@CORPUS.case
def requests_to_an_empty_group(side: Side) -> None:
    group = group_of(side)
    member, generation = joined(side, group, "a")
    side.ask(r.sync(group, member, generation, {member: b"x"}))
    side.ask(r.leave(group, member))
    ask_everything(side, group, member, generation)


@CORPUS.case
def requests_while_members_gather(side: Side) -> None:
    group = group_of(side)
    member, generation = joined(side, group, "a")
    side.ask(r.sync(group, member, generation, {member: b"x"}))
    second = side.ask(r.join(group), 5, on="b").member_id
    side.send(r.join(group, second), 5, on="b")
    wait_for_rebalance(side, group)
    ask_everything(side, group, member, generation)


@CORPUS.versions("SyncGroup")
def assignments(side: Side, version: int) -> None:
    """A leader that assigns less, more and nothing; asking again."""
    group = group_of(side)
    first, second, generation = pair(side)
    for member in (first, second):
        side.ask(r.sync(group, member, generation, {}), version)
    side.ask(r.leave(group, second), 3)
    generation = side.ask(r.join(group, first), 5, on="a").generation_id
    assigned = {"unknown": b"x", second: b"y"}
    side.ask(r.sync(group, first, generation, assigned), version, on="a")
    side.ask(r.sync(group, first, generation, {first: b"late"}), version, on="a")
    side.ask(r.sync("", first, generation, {}), version)


@CORPUS.case
def followers_wait_for_the_assignment(side: Side) -> None:
    group = group_of(side)
    first, second, _ = pair(side)
    generation = 0
    request = r.join(group, first)
    side.send(request, 5, on="a")
    wait_for_rebalance(side, group)
    side.ask(r.join(group, second), 5, on="b")
    generation = side.answer(request, 5, on="a").generation_id
    waiting = r.sync(group, second, generation, {})
    side.send(waiting, on="b")
    describe(side, group)
    side.ask(r.sync(group, first, generation, {second: b"yours"}), on="a")
    side.answer(waiting, on="b")


# --- leaving


@CORPUS.versions("LeaveGroup")
def leaving(side: Side, version: int) -> None:
    group = group_of(side)
    member, _ = joined(side, group, "a")
    side.ask(r.leave("", member), version)
    side.ask(r.leave(group, "unknown"), version)
    side.ask(r.leave(group, member), version)
    side.ask(r.leave(group, member), version)
    describe(side, group)


@CORPUS.versions("LeaveGroup", only=(3, 5))
def leaving_together(side: Side, version: int) -> None:
    group = group_of(side)
    first, second, _ = pair(side)
    side.ask(r.leave(group, first, "unknown", second, first), version)
    describe(side, group)
    request = m.LeaveGroupRequest(group_id=group)
    side.ask(request, version)


@CORPUS.case
def leaving_before_joining_with_the_given_id(side: Side) -> None:
    group = group_of(side)
    member = side.ask(r.join(group), 5).member_id
    describe(side, group)
    side.ask(r.heartbeat(group, member, 0))
    side.ask(r.sync(group, member, 0, {}))
    side.ask(r.leave(group, member))
    side.ask(r.join(group, member), 5)


# --- static members (KIP-345)


def static_pair(side: Side, **fields: Any) -> tuple[str, str, int]:
    """Two static members, one and two, of a stable group; the first leads."""
    group = group_of(side)
    first, _ = joined(side, group, "a", group_instance_id="one", **fields)
    request = r.join(group, group_instance_id="two", **fields)
    side.send(request, 5, on="b")
    wait_for_rebalance(side, group)
    own = r.join(group, first, group_instance_id="one", **fields)
    generation = side.ask(own, 5, on="a").generation_id
    second = side.answer(request, 5, on="b").member_id
    assigned = {first: b"first", second: b"second"}
    side.ask(r.sync(group, first, generation, assigned, group_instance_id="one"), on="a")
    side.ask(r.sync(group, second, generation, {}, group_instance_id="two"), on="b")
    return first, second, generation


@CORPUS.versions("JoinGroup", only=(5, 7, 8, 9))
def static_members_come_back(side: Side, version: int) -> None:
    group = group_of(side)
    first, second, generation = static_pair(side, **SHORT)
    for instance, old in (("two", second), ("one", first)):
        new = side.ask(r.join(group, group_instance_id=instance, **SHORT), version).member_id
        for member in (old, new):
            side.ask(r.heartbeat(group, member, generation, group_instance_id=instance))
            side.ask(r.join(group, member, group_instance_id=instance, **SHORT), version, on="x")
        side.ask(r.sync(group, new, generation, {}, group_instance_id=instance))
        side.ask(r.sync(group, old, generation, {}, group_instance_id=instance))
        describe(side, group)


@CORPUS.case
def static_members_that_were_replaced(side: Side) -> None:
    topic = side.topic()
    group = group_of(side)
    _, second, generation = static_pair(side)
    side.ask(r.join(group, group_instance_id="two"), 9)
    for instance in ("two", "three", None):
        side.ask(r.heartbeat(group, second, generation, group_instance_id=instance))
        request = r.commit(
            group,
            topic,
            1,
            member=second,
            generation=generation,
            group_instance_id=instance,
        )
        side.ask(request, 9)
    side.ask(r.leave(group, second, group_instance_id="two"))
    side.ask(r.leave(group, "", group_instance_id="two"))
    side.ask(r.leave(group, "", group_instance_id="two"))
    side.ask(r.leave(group, "", group_instance_id="three"))
    describe(side, group)


@CORPUS.case
def a_static_member_with_other_protocols(side: Side) -> None:
    group = group_of(side)
    static_pair(side, **SHORT)
    side.ask(r.join(group, protocols=("sticky",), group_instance_id="two"), 9)
    changed = r.join(group, protocols=("range", "sticky"), group_instance_id="two", **SHORT)
    side.ask(changed, 9)
    describe(side, group)


@CORPUS.case
def an_instance_id_with_an_unknown_member_id(side: Side) -> None:
    group = group_of(side)
    static_pair(side)
    side.ask(r.join(group, "unknown", group_instance_id="one"), 9)
    side.ask(r.join(group, "unknown", group_instance_id="three"), 9)
    side.ask(r.join(f"{group}-new", "unknown", group_instance_id="one"), 9)


# --- looking at groups


@CORPUS.versions("DescribeGroups")
def describing(side: Side, version: int) -> None:
    group = group_of(side)
    member, generation = joined(side, group, "a", protocol_type="connect")
    for _ in range(2):
        request = m.DescribeGroupsRequest(
            groups=[group, f"{group}-none", ""], include_authorized_operations=True
        )
        side.ask(request, version)
        side.ask(r.sync(group, member, generation, {member: b"x"}, protocol_type="connect"), 5)


@CORPUS.versions("ListGroups")
def listing(side: Side, version: int) -> None:
    topic = side.topic()
    group = group_of(side)
    joined(side, group, "a")
    side.ask(r.commit(f"{group}-simple", topic, 1), 9)
    if version < 4:
        side.ask(m.ListGroupsRequest(), version)
    for state in ("Stable", "stable", "Empty", "CompletingRebalance", "Dead", "nothing", ""):
        if version >= 4:
            side.ask(m.ListGroupsRequest(states_filter=[state]), version)
    for kind in ("classic", "Classic", "consumer", "nothing", ""):
        if version >= 5:
            side.ask(m.ListGroupsRequest(types_filter=[kind]), version)
    if version >= 5:
        both = m.ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"])
        side.ask(both, version)


@CORPUS.versions("DeleteGroups")
def deleting(side: Side, version: int) -> None:
    topic = side.topic()
    group = group_of(side)
    member, _ = joined(side, group, "a")
    names = [group, f"{group}-simple", f"{group}-none", ""]
    side.ask(r.commit(names[1], topic, 1), 9)
    side.ask(m.DeleteGroupsRequest(groups_names=names), version)
    side.ask(r.leave(group, member))
    side.ask(m.DeleteGroupsRequest(groups_names=[group, group]), version)
    describe(side, *names)
    side.ask(r.committed(names[1], topic), 9)


@CORPUS.versions("FindCoordinator")
def coordinators(side: Side, version: int) -> None:
    for keys in (["g"], ["g", "h", "g"], [""], []):
        request = m.FindCoordinatorRequest(key=keys[0] if keys else "g", coordinator_keys=keys)
        side.ask(request, version)
    if version:
        for kind in (3, -1):
            request = m.FindCoordinatorRequest(key="g", key_type=kind, coordinator_keys=["g"])
            side.ask(request, version)

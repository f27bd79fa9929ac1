from typing import Any

import pytest
from logfleet.groups.classic.group import ClassicGroup, GroupState, Member
from logfleet.wire.errors import ErrorCode


def ignore(*_: object) -> None:
    pass


def new_group() -> ClassicGroup:
    return ClassicGroup("g", on_join_deadline=ignore, on_sync_deadline=ignore)


def new_member(name: str, *protocols: str, **fields: Any) -> Member:
    return Member(
        member_id=name,
        group_instance_id=fields.pop("instance", None),
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=fields.pop("rebalance_ms", 1),
        session_timeout_ms=1,
        protocols=tuple((protocol, protocol.encode()) for protocol in protocols),
        on_session_deadline=ignore,
        **fields,
    )


def group_of(*members: Member) -> ClassicGroup:
    group = new_group()
    for member in members:
        group.add(member, "consumer")
    return group


def test_the_first_member_leads_until_it_goes():
    group = group_of(new_member("a", "x"), new_member("b", "x"))
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "b"
    group.remove("b")
    assert group.leader_id is None


def test_removing_nobody_changes_nothing():
    group = group_of(new_member("a", "x"))
    assert group.remove("b") is None
    assert group.leader_id == "a"


@pytest.mark.parametrize(
    "preferences,selected",
    [
        (["xy", "yx", "yx"], "y"),
        (["xyz", "xz", "zx"], "x"),
        (["xy", "yz"], "y"),
        (["xy", "yx"], "x"),
    ],
    ids=["majority", "candidates", "only one common", "tie: who voted first"],
)
def test_most_votes_among_common_protocols_win(preferences, selected):
    group = group_of(*(new_member(str(n), *names) for n, names in enumerate(preferences)))
    assert group.select_protocol() == selected


def test_a_group_supports_what_all_its_members_do():
    group = group_of(new_member("a", "x", "y"), new_member("b", "y"))
    group.transition(GroupState.PREPARING_REBALANCE, 0)
    assert group.supports("consumer", (("y", b""),))
    assert not group.supports("consumer", (("x", b""),))
    assert not group.supports("connect", (("y", b""),))
    group.remove("b")
    assert group.supports("consumer", (("x", b""),))


@pytest.mark.parametrize("kind,protocols", [("", (("x", b""),)), ("consumer", ())])
def test_an_empty_group_wants_a_type_and_a_protocol(kind, protocols):
    assert not new_group().supports(kind, protocols)


def test_the_rebalance_timeout_is_the_longest():
    group = group_of(new_member("a", "x", rebalance_ms=5), new_member("b", "x", rebalance_ms=9))
    assert group.rebalance_timeout_ms() == 9
    assert new_group().rebalance_timeout_ms() == 0


@pytest.mark.parametrize(
    "member_id,instance,error",
    [
        ("a", None, ErrorCode.NONE),
        ("s", "one", ErrorCode.NONE),
        ("s", None, ErrorCode.NONE),
        ("old", "one", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "two", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_are_known_by_both_ids(member_id, instance, error):
    group = group_of(new_member("a", "x"), new_member("s", "x", instance="one"))
    assert group.check_member(member_id, instance) is error


def test_a_static_member_keeps_everything_but_its_id():
    group = group_of(new_member("s", "x", instance="one"), new_member("b", "x"))
    group.pending_sync = {"s", "b"}
    group.replace_id(group.members["s"], "t")
    assert group.leader_id == "t"
    assert group.static_members == {"one": "t"}
    assert group.pending_sync == {"t", "b"}
    assert set(group.members) == {"t", "b"}


def test_only_who_joined_can_lead():
    group = group_of(new_member("a", "x"), new_member("b", "x"))
    assert not group.elect_joined_leader()
    group.park_join(group.members["b"], "waiter")
    assert group.elect_joined_leader()
    assert group.leader_id == "b"
    assert group.elect_joined_leader()
    assert not new_group().elect_joined_leader()


def test_parked_joins_are_counted_once():
    group = group_of(new_member("a", "x", join_waiter="first"))
    assert group.everybody_joined()
    assert group.park_join(group.members["a"], "second") == "first"
    assert group.awaiting_join == 1
    group.park_join(group.members["a"], None)
    assert group.awaiting_join == 0
    group.park_join(group.members["a"], "third")
    group.remove("a")
    assert group.awaiting_join == 0


@pytest.mark.parametrize(
    "is_new,join_waiter,sync_waiter,kept",
    [
        (False, None, None, False),
        (False, "w", None, True),
        (False, None, "w", True),
        (True, "w", None, False),
    ],
)
def test_waiting_keeps_the_session_of_members_that_know_their_id(
    is_new, join_waiter, sync_waiter, kept
):
    member = new_member("a", "x", is_new=is_new, join_waiter=join_waiter, sync_waiter=sync_waiter)
    assert member.keeps_session_by_waiting() is kept


def test_a_state_that_cannot_follow_is_a_bug():
    with pytest.raises(AssertionError):
        new_group().transition(GroupState.STABLE, 0)


def test_metadata_of_a_protocol_that_a_member_lacks_is_a_bug():
    assert new_member("a", "x").metadata("x") == b"x"
    with pytest.raises(AssertionError):
        new_member("a", "x").metadata("y")


def test_changed_protocols_change_what_the_group_supports():
    group = group_of(new_member("a", "x"))
    group.change_protocols(group.members["a"], (("y", b""),))
    group.transition(GroupState.PREPARING_REBALANCE, 0)
    assert group.supports("consumer", (("y", b""),))
    assert not group.supports("consumer", (("x", b""),))

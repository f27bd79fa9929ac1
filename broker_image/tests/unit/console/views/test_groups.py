from logfleet.client.offsets import TopicPartition
from logfleet.console.history import History
from logfleet.console.sample import GroupSample
from logfleet.console.views.groups import group, groups

from broker_image.tests.unit.console.samples import NOW_S, fleet


def growing(*, lag: bool = True) -> History:
    """orders ends with 150, and had 140 ten seconds ago; billing commits nothing for 200 s."""
    history = History()
    for step in range(41):
        at = NOW_S - 200 + step * 5
        history.ends.add("orders", at, 110 + step)
        history.lags.add("billing", at, step if lag else 10)
        history.commits.add("billing", at, 140)
    return history


def test_a_group_that_has_members_and_commits_nothing_is_stuck() -> None:
    data = group(fleet(), growing(), "billing", NOW_S, 60)
    assert data is not None
    assert data["stuck"] == "no commit for 3 min, 1 member, lag grows"
    assert (data["lag"], data["lag_by_topic"]) == (10, {"orders": 10})
    calm = group(fleet(), growing(lag=False), "billing", NOW_S, 60)
    assert calm is not None
    assert calm["stuck"] == "no commit for 3 min, 1 member, lag stays"


def test_a_group_without_lag_or_members_or_for_less_time_is_not_stuck() -> None:
    data = group(fleet(), growing(), "billing", NOW_S, 300)
    assert data is not None
    assert (data["stuck"], data["growing"]) == (None, True)
    read = GroupSample(
        "billing",
        "Stable",
        "classic",
        NOW_S,
        "",
        fleet().groups["billing"].members,
        {TopicPartition("orders", 0): 110},
    )
    caught_up = group(fleet(groups={"billing": read}), growing(), "billing", NOW_S, 60)
    assert caught_up is not None
    assert (caught_up["stuck"], caught_up["lag"]) == (None, 0)
    empty = GroupSample(
        "billing", "Empty", "classic", NOW_S, "", (), {TopicPartition("orders", 0): 1}
    )
    assert (
        groups(fleet(groups={"billing": empty}), growing(), {}, NOW_S, 60)["groups"][0]["stuck"]
        is None
    )


def test_the_time_behind_is_since_the_topic_had_what_is_committed() -> None:
    data = group(fleet(), growing(), "billing", NOW_S, 60)
    assert data is not None
    assert data["behind_s"] == 50
    assert group(fleet(), History(), "billing", NOW_S, 60)["behind_s"] is None  # type: ignore[index]


def test_offsets_name_their_readers_and_those_of_a_deleted_topic_have_no_lag() -> None:
    data = group(fleet(), History(), "billing", NOW_S, 60)
    assert data is not None
    assert [(row["topic"], row["end"], row["lag"], row["member"]) for row in data["offsets"]] == [
        ("gone", None, None, None),
        ("orders", 110, 10, "m-1"),
        ("orders", 40, 0, None),
    ]
    assert group(fleet(), History(), "none", NOW_S, 60) is None


def test_the_list_begins_with_the_largest_lag() -> None:
    two = {
        **fleet().groups,
        "archive": GroupSample(
            "archive", "Empty", "classic", NOW_S, "", (), {TopicPartition("orders", 0): 0}
        ),
        "new": GroupSample("new", "Empty", "classic", 0.0),
    }
    sample = fleet(groups=two)
    assert [row["name"] for row in groups(sample, History(), {}, NOW_S, 60)["groups"]] == [
        "archive",
        "billing",
        "new",
    ]
    assert [
        row["name"]
        for row in groups(sample, History(), {"sort": "name", "filter": "I"}, NOW_S, 60)["groups"]
    ] == ["archive", "billing"]

import pytest
from logfleet.controller.brokers.vanishing import HELD_MS_MAX, WITHIN_MS, RecentBrokers, hold
from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.brokers import ACTIVE, DRAINING, FENCED, BrokerValue
from logfleet.types import BrokerEpoch


def broker(broker_id: int, rack: str | None = None, epoch: int = 0, state: str = ACTIVE, **fields):
    value = BrokerValue("i", (), rack, **fields)
    return Broker(broker_id, BrokerEpoch(epoch or 10 * broker_id), value, state)


def fleet(racks: str) -> dict[int, Broker]:
    """A broker in each of these zones, `-` for none."""
    zones = [None if each == "-" else each for each in racks]
    return {each: broker(each, zone) for each, zone in enumerate(zones, 1)}


def without(brokers: dict[int, Broker], *gone: int) -> dict[int, Broker]:
    return {each: brokers[each] for each in brokers if each not in gone}


@pytest.mark.parametrize(
    "racks, gone, is_held",
    [
        ("abc", (1,), False),  # a broker dies
        ("abc", (1, 2), True),
        ("abc", (1, 2, 3), True),
        ("aabc", (1, 2), False),  # half
        ("aab", (1, 2), False),  # a zone, and more than half
        ("aabbcc", (1, 2), False),
        ("aabbcc", (1, 3, 5), False),  # half
        ("aabbcc", (1, 2, 3, 4), True),
        ("aaa", (1, 2, 3), False),  # there is one zone only
        ("---", (1,), False),
        ("---", (1, 2), True),  # each is a zone of its own
        ("--", (1, 2), False),
        ("ab", (1, 2), False),
        ("-", (1,), False),
    ],
)
def test_elections_wait_if_most_brokers_vanish_over_several_zones(racks, gone, is_held) -> None:
    before = fleet(racks)
    found = hold(None, [before], without(before, *gone), 7_000)
    assert (found is not None) == is_held
    if found is not None:
        assert found.until_ms == 7_000 + HELD_MS_MAX


def test_it_says_who_is_waited_for() -> None:
    before = fleet("abc")
    found = hold(None, [before], {**without(before, 1, 2), 2: broker(2, "b", 21)}, 0)
    assert found is not None
    assert found.why == (
        "2 of 3 brokers lost their registrations in 2 zones within 3 s; "
        "brokers 1 may register again"
    )


def test_elections_go_on_once_all_have_registered_again() -> None:
    before = fleet("abc")
    held = hold(None, [before], without(before, 1, 2), 0)
    back = {each: broker(each, rack, 10 * each + 1) for each, rack in ((1, "a"), (2, "b"))}
    assert hold(held, [before], {**before, 1: back[1], 2: back[2]}, 500) is None
    assert hold(held, [before], {3: before[3], 1: back[1]}, 500) == held


def test_a_hold_ends_and_no_other_begins_for_the_same_reason() -> None:
    before = fleet("abc")
    first = hold(None, [before], without(before, 1, 2), 0)
    assert first is not None
    assert hold(first, [before], without(before, 1, 2, 3), 2_900) == first


@pytest.mark.parametrize(
    "last",
    [
        broker(1, "a", state=FENCED),  # others have seen it refuse connections
        broker(1, "a", state=DRAINING),
        broker(1, "a", leaving=True),
    ],
    ids=["fenced before", "draining", "leaving"],
)
def test_who_was_known_to_go_has_not_vanished(last) -> None:
    before = fleet("abc")
    seen = [before, {**before, 1: last}]
    assert hold(None, seen, without(before, 1, 2), 0) is None


def test_brokers_that_vanish_one_after_the_other_have_vanished_at_once_if_it_takes_not_long() -> (
    None
):
    before, recent = fleet("abc"), RecentBrokers()
    recent.record(before, 0)
    recent.record(without(before, 1), 50_000)
    assert hold(None, recent.within(50_000), without(before, 1), 50_000) is None
    recent.record(without(before, 1, 2), 50_900)
    assert hold(None, recent.within(50_900), without(before, 1, 2), 50_900) is not None


def test_what_was_long_ago_is_forgotten() -> None:
    before, recent = fleet("abc"), RecentBrokers()
    recent.record(before, 0)
    assert recent.within(1_000_000) == [before], "it is so still"
    recent.record(without(before, 1), 2_000_000)
    assert recent.within(2_000_000 + WITHIN_MS - 1) == [before, without(before, 1)]
    assert recent.within(2_000_000 + WITHIN_MS) == [without(before, 1)]

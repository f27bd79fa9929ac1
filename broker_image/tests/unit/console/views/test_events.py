import pytest
from logfleet.console.views.events import events, since_ms

from broker_image.tests.unit.console.samples import NOW_S, fleet


@pytest.mark.parametrize(
    "given, kinds",
    [
        ({}, ["fenced", "election"]),
        ({"kind": "election"}, ["election"]),
        ({"topic": "orders"}, ["election"]),
        ({"broker": "3"}, ["fenced"]),
        ({"broker": "1"}, ["election"]),
        ({"since": "10m"}, ["fenced"]),
    ],
)
def test_the_newest_come_first_and_a_selection_can_be_made(
    given: dict[str, str], kinds: list[str]
) -> None:
    data = events(fleet(), given, NOW_S)
    assert [event["kind"] for event in data["events"]] == kinds
    assert data["kinds"] == ["election", "fenced"]


def test_an_event_names_its_subject_and_what_changed() -> None:
    event = events(fleet(), {"kind": "election"}, NOW_S)["events"][0]
    assert (event["about"], event["facts_text"]) == ("orders-1", "leader 3 → 2")


def test_a_selection_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="write 10m"):
        events(fleet(), {"since": "yesterday"}, NOW_S)
    with pytest.raises(ValueError, match="'x' is not a number"):
        events(fleet(), {"broker": "x"}, NOW_S)
    assert since_ms("", NOW_S) == 0


def test_it_is_seen_whether_any_broker_reports_events() -> None:
    assert events(fleet(), {}, NOW_S)["supported"]
    assert not events(fleet(brokers={}), {}, NOW_S)["supported"]

"""A line of the list covers what it says and nothing else; one that covers nothing is told of."""

import msgspec
import pytest

from e2e.compare.__main__ import LIST
from e2e.compare.differences import Difference
from e2e.compare.reviewed import Place, ReviewedList

PLACE = Place("produce/acks-v9", "Produce", 9)
DIFFERENCE = Difference("responses[t.x].partition_responses[0].error_code", 2, 87)


def listed(**keys: object) -> ReviewedList:
    line = {"api": "Produce", "field": "responses[].*.error_code", "reason": "so", **keys}
    text = "\n".join(
        f"{key} = {msgspec.json.encode(value).decode()}" for key, value in line.items()
    )
    return ReviewedList.parse(f"[[difference]]\n{text}\n")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"api": "*"},
        {"versions": "3-9"},
        {"case": "produce/acks*"},
        {"kafka": 2, "ours": 87},
        {"field": "responses[t.x].partition_responses[0].error_code"},
        {"field": "*"},
    ],
)
def test_a_line_covers_what_it_says(keys: dict[str, object]) -> None:
    reviewed = listed(**keys)
    assert reviewed.unneeded() == reviewed.lines
    assert reviewed.allows(PLACE, DIFFERENCE)
    assert reviewed.unneeded() == []


@pytest.mark.parametrize(
    "keys",
    [
        {"api": "Fetch"},
        {"versions": "10+"},
        {"case": "fetch/*"},
        {"kafka": 3},
        {"ours": "87"},
        {"field": "responses[].error_code"},
        {"field": "responses[txx].partition_responses[0].error_code"},
    ],
)
def test_a_line_covers_nothing_else(keys: dict[str, object]) -> None:
    reviewed = listed(**keys)
    assert not reviewed.allows(PLACE, DIFFERENCE)
    assert reviewed.unneeded() == reviewed.lines


def test_each_of_several_fields_must_be_needed() -> None:
    reviewed = listed(field=["*.error_code", "*.error_message"])
    assert reviewed.allows(PLACE, DIFFERENCE)
    assert [line.field for line in reviewed.unneeded()] == ["*.error_message"]


def test_each_of_several_apis_and_cases_must_be_needed() -> None:
    reviewed = listed(api=["Produce", "Fetch"], case=["produce/*", "fetch/*"])
    assert reviewed.allows(PLACE, DIFFERENCE)
    assert [(line.api, line.case) for line in reviewed.unneeded()] == [
        ("Produce", "fetch/*"),
        ("Fetch", "produce/*"),
        ("Fetch", "fetch/*"),
    ]


def test_a_line_that_covers_only_what_another_covers_is_not_needed() -> None:
    wide, narrow = listed(field="*").lines + listed().lines
    reviewed = ReviewedList([narrow, wide])
    assert reviewed.allows(PLACE, DIFFERENCE)
    assert reviewed.unneeded() == [wide]
    assert reviewed.allows(PLACE, DIFFERENCE._replace(path="elsewhere"))
    assert reviewed.unneeded() == [narrow]


@pytest.mark.parametrize("keys", [{"reason": " "}, {"verions": "1"}, {"api": 3}])
def test_a_line_that_is_no_line_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"reason|unknown field|Expected"):
        listed(**keys)


def test_the_list_that_is_kept_can_be_read() -> None:
    assert ReviewedList.parse(LIST.read_text()).lines

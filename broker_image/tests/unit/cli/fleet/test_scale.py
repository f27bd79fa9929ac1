import pytest
from logfleet.cli.fleet.may_i import surplus
from logfleet.client.metadata import Node


def nodes(**zones: tuple[int, ...]) -> list[Node]:
    return [Node(each, "h", 1, zone) for zone, ids in zones.items() for each in ids]


@pytest.mark.parametrize(
    "count, going",
    [(6, set()), (5, {5}), (4, {5, 4}), (3, {5, 4, 3}), (1, {5, 4, 3, 2, 1})],
)
def test_who_goes_is_of_the_zones_that_have_most_and_has_the_highest_id(count, going) -> None:
    assert surplus(nodes(a=(0, 3), b=(1, 4), c=(2, 5)), count) == going


def test_a_zone_that_has_more_gives_first() -> None:
    assert surplus(nodes(a=(0, 1, 2), b=(7,)), 2) == {2, 1}

from logfleet.console.history import HISTORY_S, Ring, Rings


def ring(*points: tuple[float, float]) -> Ring:
    made = Ring()
    for at, value in points:
        made.add(at, value)
    return made


def test_a_rate_is_the_growth_of_the_last_half_minute() -> None:
    assert ring(*((at, at * 2.0) for at in range(0, 100, 5)), (100, 700)).rate() == (700 - 130) / 35
    assert ring((0, 5)).rate() == 0
    assert ring((0, 5), (0, 9)).rate() == 0


def test_values_older_than_the_history_are_dropped() -> None:
    made = ring((0, 1), (10, 2), (HISTORY_S + 5, 3))
    assert list(made.values) == [2, 3]


def test_the_time_at_which_a_growing_figure_had_a_value_lies_between_two_samples() -> None:
    made = ring((10, 100), (20, 200), (30, 200))
    assert made.reached(150) == 15
    assert made.reached(100) == 10
    assert made.reached(200) == 20
    assert made.reached(300) == 30
    assert made.reached(50) is None
    assert Ring().reached(1) is None


def test_points_are_evenly_spread_and_end_with_the_newest() -> None:
    made = ring(*((at, at) for at in range(100)))
    points = made.points(10)
    assert len(points) == 10
    assert max(points) == points[-1]
    assert [value for _, value in points[-2:]] == [89, 99]
    assert Ring().points(10) == []


def test_a_figure_that_rests_has_no_ring_and_one_that_changes_begins_with_its_last_value() -> None:
    rings = Rings()
    rings.add("a", 0, 5)
    rings.add("a", 10, 5)
    assert (rings.moving(), rings.changed_at("a")) == ([], 0)
    rings.add("a", 20, 7)
    assert list(rings.get("a").values) == [5, 7]
    assert rings.changed_at("a") == 20
    rings.add("a", 30 + HISTORY_S, 7)
    assert rings.moving() == []


def test_names_that_are_gone_are_dropped() -> None:
    rings = Rings()
    for at in (0, 1):
        rings.add("a", at, at)
        rings.add("b", at, at)
    rings.keep(["b"])
    assert (rings.moving(), rings.changed_at("a")) == (["b"], None)

import pytest
from logfleet.console.views.texts import (
    bytes_text,
    count_text,
    duration_text,
    percent,
    spark_points,
    time_text,
)


@pytest.mark.parametrize(
    "size, text",
    [
        (None, "-"),
        (-1, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (150 * 1024, "150 KiB"),
        (5 * 2**60, "5120 PiB"),
    ],
)
def test_sizes(size: int | None, text: str) -> None:
    assert bytes_text(size) == text


def test_numbers() -> None:
    assert [count_text(n) for n in (None, 0, 0.25, 9.0, 1234567, 1234.6)] == [
        "-",
        "0",
        "0.2",
        "9",
        "1,234,567",
        "1,235",
    ]


@pytest.mark.parametrize(
    "seconds, text",
    [
        (None, "-"),
        (-3, "0 s"),
        (0.25, "0.2 s"),
        (9, "9 s"),
        (119, "119 s"),
        (240, "4 min"),
        (7300, "2 h"),
        (3e5, "3 days"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


def test_times_are_utc_and_those_beyond_the_calendar_stay_numbers() -> None:
    assert time_text(1_357_044_300_007) == "2013-01-01T12:45:00.007Z"
    assert time_text(2**62) == str(2**62)


def test_a_sparkline_fills_its_box() -> None:
    assert spark_points([(0, 0), (10, 5), (20, 10)]) == "1.0,23.0 60.0,12.0 119.0,1.0"
    assert spark_points([(0, 0), (10, 0)]) == "1.0,23.0 119.0,23.0"
    assert spark_points([(0, 0)]) == ""


def test_per_cents_of_an_unknown_size_are_unknown() -> None:
    assert (percent(1, 3), percent(1, 0), percent(-1, 5)) == (33, None, None)

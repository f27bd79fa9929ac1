"""Traffic of partitions, and the clients that write and read most of it. PURE.

Counters are sampled regularly; their growth over the last samples is a rate. Requests are not
counted by client: each sample has the last writer and reader, and the one seen most often is named.
That is enough to find who fills a hot partition.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

LOOKS: Final = 7
"""Samples kept of a partition: six spans."""


class FlowSample(NamedTuple):
    """bytes_in, bytes_out: counters that grow while the partition is led in that leader epoch.

    writer, reader: client ids of the last ones, None if there was none yet.
    """

    topic: str
    partition: int
    leader_epoch: int
    bytes_in: int
    bytes_out: int
    writer: str | None
    reader: str | None


class Flow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes per second into and out of a partition that this broker leads.

    writer, reader: client ids seen most often.
    """

    topic: str
    partition: int
    bytes_in: float
    bytes_out: float
    writer: str | None = None
    reader: str | None = None

    @property
    def rate(self) -> float:
        return self.bytes_in + self.bytes_out


class Flows:
    """The traffic of all partitions that a broker leads."""

    def __init__(self) -> None:
        self._looks: dict[Hashable, deque[tuple[int, FlowSample]]] = {}

    def look(self, key: Hashable, now_ms: int, look: FlowSample) -> None:
        """Add a sample of a partition's counters. Another leader epoch starts again."""
        looks = self._looks.get(key)
        if looks is None or looks[-1][1].leader_epoch != look.leader_epoch:
            looks = self._looks[key] = deque(maxlen=LOOKS)
        looks.append((now_ms, look))

    def keep(self, keys: Iterable[Hashable]) -> None:
        """Keep only these partitions: this broker leads no others any more."""
        led = set(keys)
        self._looks = {key: looks for key, looks in self._looks.items() if key in led}

    def told(self) -> list[Flow]:
        """Partitions with traffic, the busiest first."""
        found = [flow for looks in self._looks.values() if (flow := _flow(looks)) is not None]
        return sorted(found, key=lambda flow: (-flow.rate, flow.topic, flow.partition))


def _flow(looks: deque[tuple[int, FlowSample]]) -> Flow | None:
    (first_ms, first), (last_ms, last) = looks[0], looks[-1]
    written, read = last.bytes_in - first.bytes_in, last.bytes_out - first.bytes_out
    if last_ms <= first_ms or not (written or read):
        return None
    seconds = (last_ms - first_ms) / 1000
    seen = [look for _, look in looks]
    return Flow(
        last.topic,
        last.partition,
        round(written / seconds, 1),
        round(read / seconds, 1),
        _most(look.writer for look in seen) if written else None,
        _most(look.reader for look in seen) if read else None,
    )


def _most(clients: Iterable[str | None]) -> str | None:
    counts = Counter(client for client in clients if client is not None)
    return counts.most_common(1)[0][0] if counts else None

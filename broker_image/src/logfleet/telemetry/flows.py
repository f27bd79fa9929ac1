"""Traffic of partitions, and the clients that write and read most of it. PURE.

Counters are sampled regularly; their growth over the last samples is a rate. Requests are not
counted by client: each sample has the last writer and reader, and the one seen most often is named.
That is enough to find who fills a hot partition.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

SAMPLES_MAX: Final = 7
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
        self._samples: dict[Hashable, deque[tuple[int, FlowSample]]] = {}

    def add_sample(self, key: Hashable, now_ms: int, sample: FlowSample) -> None:
        """Add a sample of a partition's counters. Another leader epoch starts again."""
        samples = self._samples.get(key)
        if samples is None or samples[-1][1].leader_epoch != sample.leader_epoch:
            samples = self._samples[key] = deque(maxlen=SAMPLES_MAX)
        samples.append((now_ms, sample))

    def keep(self, keys: Iterable[Hashable]) -> None:
        """Keep only these partitions: this broker leads no others any more."""
        led = set(keys)
        self._samples = {key: samples for key, samples in self._samples.items() if key in led}

    def by_traffic(self) -> list[Flow]:
        """Partitions with traffic, the busiest first."""
        found = [flow for samples in self._samples.values() if (flow := _flow(samples)) is not None]
        return sorted(found, key=lambda flow: (-flow.rate, flow.topic, flow.partition))


def _flow(samples: deque[tuple[int, FlowSample]]) -> Flow | None:
    (first_ms, first), (last_ms, last) = samples[0], samples[-1]
    written, read = last.bytes_in - first.bytes_in, last.bytes_out - first.bytes_out
    if last_ms <= first_ms or not (written or read):
        return None
    seconds = (last_ms - first_ms) / 1000
    seen = [sample for _, sample in samples]
    return Flow(
        last.topic,
        last.partition,
        round(written / seconds, 1),
        round(read / seconds, 1),
        _most_frequent(sample.writer for sample in seen) if written else None,
        _most_frequent(sample.reader for sample in seen) if read else None,
    )


def _most_frequent(clients: Iterable[str | None]) -> str | None:
    counts = Counter(client for client in clients if client is not None)
    return counts.most_common(1)[0][0] if counts else None

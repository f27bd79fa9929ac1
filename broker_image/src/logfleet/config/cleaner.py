"""What the log.cleaner.* keys mean for the broker's cleaner now.

A topic's keys are in its LogConfig.
"""

from collections.abc import Mapping

import msgspec

from logfleet.config.dynamic import in_force, layers_of
from logfleet.config.keys import BROKER_KEYS
from logfleet.config.topic import BrokerLayers
from logfleet.metadata.image import ClusterImage


class CleanerSettings(msgspec.Struct, frozen=True):
    """threads: logs cleaned at a time, each in its own process.

    map_bytes, bytes_per_second: of one of them.
    """

    threads: int
    backoff_s: float
    map_bytes: int
    load_factor: float
    bytes_per_second: float


def settings_of(static: Mapping[str, str], image: ClusterImage, node_id: int) -> CleanerSettings:
    """`cleaner_settings` of the broker with this id in an image. static: its server.properties."""
    return cleaner_settings(in_force(layers_of(static, image, node_id))[0])


def cleaner_settings(layers: BrokerLayers) -> CleanerSettings:
    """The values in force; a total over all threads is divided evenly among them, as Kafka does."""

    def number(key: str) -> float:
        value = BROKER_KEYS[key].parse(layers.effective_value(key))
        assert isinstance(value, int | float), f"{key} is a number"
        return value

    threads = max(int(number("log.cleaner.threads")), 1)
    return CleanerSettings(
        threads=threads,
        backoff_s=number("log.cleaner.backoff.ms") / 1000,
        map_bytes=int(number("log.cleaner.dedupe.buffer.size")) // threads,
        load_factor=min(max(number("log.cleaner.io.buffer.load.factor"), 0.01), 0.95),
        bytes_per_second=number("log.cleaner.io.max.bytes.per.second") / threads,
    )

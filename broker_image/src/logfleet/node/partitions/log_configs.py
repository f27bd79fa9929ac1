"""Turns a topic's configuration in the cluster into the LogConfig of its logs on this broker."""

from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from logfleet.config.dynamic import BrokerPart, in_force, layers_of, pieces_to_notify
from logfleet.config.keys import BROKER_KEYS, TOPIC_KEYS, ConfigError, ConfigValue
from logfleet.config.topic import BrokerLayers, topic_defaults, topic_values
from logfleet.log.config import LogConfig
from logfleet.metadata.image import ClusterImage
from logfleet.records.batch import TimestampType
from logfleet.records.compression import Codec

log = structlog.get_logger(__name__)

# The value of compression.type that keeps batches as producers send them.
_AS_SENT: Final = "producer"
# The other values: the broker recompresses batches that have another codec.
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS: Final = {
    Codec.GZIP: "compression.gzip.level",
    Codec.LZ4: "compression.lz4.level",
    Codec.ZSTD: "compression.zstd.level",
}
_VALIDATED_IN_FULL: Final = "full"
_TIMESTAMPS: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
_RECOVERY_THREADS: Final = BROKER_KEYS["num.recovery.threads.per.data.dir"]

RECOVERY_THREADS_MAX: Final = 64
"""Threads; any number may be configured, but more than these would wait for one interpreter."""


class LogConfigs:
    """The LogConfig of each topic.

    Caches the defaults until the broker's own configuration changes.
    """

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        self._node_id = node_id
        self._static = static
        self._layers: BrokerLayers | None = None
        self._defaults: Mapping[str, str | None] = {}
        self._latest: tuple[Mapping[str, str], LogConfig] | None = None

    def may_differ(self, image: ClusterImage) -> bool:
        """Whether `image` gives topics other defaults than those that `of` last used."""
        layers = layers_of(self._static, image, self._node_id)
        return self._layers is None or BrokerPart.LOGS in pieces_to_notify(self._layers, layers)

    def of(self, image: ClusterImage, topic: str) -> LogConfig:
        """The LogConfig of the topic by `image`; the broker's defaults if it is not there."""
        layers = layers_of(self._static, image, self._node_id)
        if layers != self._layers:
            self._layers = layers
            self._defaults = topic_defaults(in_force(layers)[0])
            self._latest = None
        existing = image.topic(topic)
        overrides = existing.configs if existing else {}
        # A cache of one: logs are opened topic by topic, and a topic may have a thousand
        # partitions.
        if self._latest is None or self._latest[0] != overrides:
            usable = _usable(topic, overrides)
            self._latest = overrides, log_config(topic_values(usable, self._defaults))
        return self._latest[1]

    def recovery_threads(self, image: ClusterImage) -> int:
        """Return how many logs of a directory are opened in parallel.

        It is num.recovery.threads.per.data.dir, up to a limit. At shutdown as many are closed in
        parallel, if that is more than the default.
        """
        layers = in_force(layers_of(self._static, image, self._node_id))[0]
        threads = _RECOVERY_THREADS.parse(layers.effective_value(_RECOVERY_THREADS.name))
        assert isinstance(threads, int), "it is a number"
        return min(threads, RECOVERY_THREADS_MAX)


def _usable(topic: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides without values that do not parse: these count as not set, as in `in_force`.

    A broker refuses such values: they got into the store some other way.
    """
    usable = {}
    for name in TOPIC_KEYS.keys() & overrides.keys():
        text = overrides[name]
        try:
            TOPIC_KEYS[name].parse(text)
        except ConfigError as error:
            log.warning("topic_config_ignored", topic=topic, key=name, reason=str(error))
        else:
            usable[name] = text
    return usable


def log_config(values: Mapping[str, ConfigValue]) -> LogConfig:
    """Typed values of all topic keys as a LogConfig."""
    codec = None
    if values["compression.type"] != _AS_SENT:
        codec = _CODECS[str(values["compression.type"])]
    level = values[_LEVELS[codec]] if codec in _LEVELS else None
    policy = values["cleanup.policy"]
    assert isinstance(policy, tuple), "cleanup.policy is a list"
    special = {
        "cleanup_policy": frozenset(policy),
        "compression_type": codec,
        "compression_level": level,
        "validates_records": values["logfleet.record.validation"] == _VALIDATED_IN_FULL,
        "message_timestamp_type": _TIMESTAMPS[str(values["message.timestamp.type"])],
    }
    plain = {
        name: value
        for name in LogConfig.__struct_fields__
        if name not in special and (value := values.get(name.replace("_", "."))) is not None
    }
    return msgspec.convert({**plain, **special}, LogConfig)

"""DescribeConfigs: every key of a topic or broker with its value, where that comes from, and what else was set for it.

Which synonyms are listed, and in which order, follows Kafka's ConfigHelper: per layer from the most specific, in each layer
the finer unit first, beginning with the first that has the key's own name. Keys without effect say so in their documentation.
"""

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from logfleet.control.config_keys import (
    BROKER_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    UpdateMode,
)
from logfleet.control.topic_configs import BrokerLayers, topic_defaults

NO_EFFECT: Final = "Stored and described; it has no effect in this version."
UNKNOWN_TYPE: Final = 0


class ConfigSource(enum.IntEnum):
    """Numbered as in DescribeConfigs responses (Kafka: DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigSynonym(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(msgspec.Struct, frozen=True):
    """value: None if there is none, or if it is sensitive. synonyms: the most specific first, the one in force."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: int
    documentation: str


def describe_topic(overrides: Mapping[str, str], layers: BrokerLayers) -> Iterator[DescribedConfig]:
    """Every topic key, for a topic with these overrides on a broker with these layers."""
    defaults = topic_defaults(layers)
    for name, key in TOPIC_KEYS.items():
        names = [source for source, _ in key.sources]
        synonyms = _synonyms(names, layers)
        value = defaults[name]
        if name in overrides:
            value = key.canonical(overrides[name])
            synonyms = (ConfigSynonym(name, value, ConfigSource.TOPIC), *synonyms)
        yield _described(key, value, synonyms)


def describe_new_topic(
    overrides: Mapping[str, str], layers: BrokerLayers
) -> Iterator[DescribedConfig]:
    """As `describe_topic`, but a coarser unit counts as the source of a value (Kafka: KafkaConfigSchema)."""
    for described in describe_topic(overrides, layers):
        if described.source is ConfigSource.DEFAULT:
            names = [source for source, _ in TOPIC_KEYS[described.name].sources]
            found = _every_synonym(names, layers)
            source = found[0].source if found else ConfigSource.DEFAULT
            yield msgspec.structs.replace(described, source=source)
        else:
            yield described


def describe_broker(layers: BrokerLayers) -> Iterator[DescribedConfig]:
    """Every broker key, and keys of server.properties that nobody knows: their values are never shown."""
    for name, key in BROKER_KEYS.items():
        value = layers.effective(name)
        synonyms = _synonyms(_names(name), layers)
        yield _described(key, None if value is None else key.canonical(value), synonyms)
    for name in layers.static:
        if name not in BROKER_KEYS:
            synonym = ConfigSynonym(name, None, ConfigSource.STATIC_BROKER)
            yield DescribedConfig(
                name,
                None,
                ConfigSource.STATIC_BROKER,
                is_read_only=True,
                is_sensitive=True,
                synonyms=(synonym,),
                type=UNKNOWN_TYPE,
                documentation="",
            )


def describe_cluster(values: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """The dynamic values that were set for all brokers."""
    layers = BrokerLayers(cluster=values)
    for name in values:
        if name in BROKER_KEYS:
            synonyms = tuple(
                synonym
                for synonym in _synonyms([name], layers)
                if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
            )
            key = BROKER_KEYS[name]
            yield _described(key, key.canonical(values[name]), synonyms)


def documentation(key: ConfigKey) -> str:
    """What people are told about a key."""
    return key.doc if key.has_effect else f"{key.doc} {NO_EFFECT}"


def _described(
    key: ConfigKey, value: str | None, synonyms: tuple[ConfigSynonym, ...]
) -> DescribedConfig:
    return DescribedConfig(
        key.name,
        None if key.is_sensitive else value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_read_only=key.mode is UpdateMode.READ_ONLY,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        type=key.type,
        documentation=documentation(key),
    )


_FINER_UNITS: Final[Mapping[str, Sequence[str]]] = {
    key.sources[0][0]: [name for name, _ in key.sources]
    for key in TOPIC_KEYS.values()
    if len(key.sources) > 1
}


def _names(broker_key: str) -> Sequence[str]:
    """The key and those that stand in for it when it is not set, as log.retention.minutes for log.retention.ms."""
    return _FINER_UNITS.get(broker_key, (broker_key,))


def _synonyms(names: Sequence[str], layers: BrokerLayers) -> tuple[ConfigSynonym, ...]:
    found = _every_synonym(names, layers)
    return tuple(itertools.dropwhile(lambda synonym: synonym.name != names[0], found))


def _every_synonym(names: Sequence[str], layers: BrokerLayers) -> list[ConfigSynonym]:
    defaults = {
        name: default for name in names if (default := BROKER_KEYS[name].default) is not None
    }
    return [
        ConfigSynonym(name, _shown(name, values[name]), source)
        for values, source in (
            (layers.dynamic, ConfigSource.DYNAMIC_BROKER),
            (layers.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (layers.static, ConfigSource.STATIC_BROKER),
            (defaults, ConfigSource.DEFAULT),
        )
        for name in names
        if name in values
    ]


def _shown(name: str, value: str) -> str | None:
    key = BROKER_KEYS[name]
    return None if key.is_sensitive else key.canonical(value)

"""DescribeConfigs: every key of a topic, broker or group with value, source and synonyms.

Synonyms and their order follow Kafka's ConfigHelper: the most specific layer first, within a layer
the finer unit first, starting at the first that has the key's own name. A value is shown in its
canonical form, a broker's synonym as it was set. The documentation of a key without effect says so.
"""

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from logfleet import BUILD_VERSION, __version__
from logfleet.config.broker_updates import base_key
from logfleet.config.keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    ConfigType,
    UpdateMode,
)
from logfleet.config.topic import BrokerLayers, topic_defaults

NO_EFFECT: Final = "Stored and described; it has no effect in this version."


class ConfigSource(enum.IntEnum):
    """Numbered as in DescribeConfigs responses (Kafka: DescribeConfigsResponse.ConfigSource)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


class ConfigSynonym(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(msgspec.Struct, frozen=True):
    """One described key.

    value: None if there is none, or if it is sensitive. synonyms: the one in force first, then the
    less specific.
    """

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
        text = overrides.get(name, defaults[name])
        value = None if text is None else key.canonical(text)
        if name in overrides:
            synonyms = (ConfigSynonym(name, value, ConfigSource.TOPIC), *synonyms)
        yield _described(key, value, synonyms)


def describe_new_topic(
    overrides: Mapping[str, str], layers: BrokerLayers
) -> Iterator[DescribedConfig]:
    """As `describe_topic`, but as Kafka's KafkaConfigSchema shows a new topic.

    A coarser unit counts as the source of a value, and a value that was set is shown as it was set.
    """
    for described in describe_topic(overrides, layers):
        if described.name in overrides:
            yield msgspec.structs.replace(described, value=overrides[described.name])
        elif described.source is ConfigSource.DEFAULT:
            names = [source for source, _ in TOPIC_KEYS[described.name].sources]
            found = _every_synonym(names, layers)
            source = found[0].source if found else ConfigSource.DEFAULT
            yield msgspec.structs.replace(described, source=source)
        else:
            yield described


def describe_group(overrides: Mapping[str, str], layers: BrokerLayers) -> Iterator[DescribedConfig]:
    """Every group key, for a group with these overrides, whether it exists or not (KIP-1043)."""
    for name, key in GROUP_KEYS.items():
        synonyms = [
            synonym for source, _ in key.sources for synonym in _every_synonym([source], layers)
        ]
        if not key.sources:
            assert key.default is not None, "a key without broker keys has a default"
            synonyms = [ConfigSynonym(name, key.default, ConfigSource.DEFAULT)]
        value = key.canonical(overrides[name]) if name in overrides else _inherited(key, layers)
        if name in overrides:
            synonyms.insert(0, ConfigSynonym(name, value, ConfigSource.GROUP))
        yield _described(key, value, tuple(synonyms))


def _inherited(key: ConfigKey, layers: BrokerLayers) -> str | None:
    for source, _ in key.sources:
        text = layers.effective_value(source)
        if text is not None:
            broker_key = BROKER_KEYS[source]
            if broker_key.type is ConfigType.LIST and key.type is not ConfigType.LIST:
                text = text.split(",")[0]  # the first of several assignors is the default
            return key.canonical(text)
    return key.default


def describe_broker(layers: BrokerLayers) -> Iterator[DescribedConfig]:
    """Every broker key, listeners' keys that are set, and unknown keys without their values."""
    for name, key in BROKER_KEYS.items():
        value = layers.effective_value(name)
        if key.is_shown_while_set and layers.set_value(name) is None:
            continue
        synonyms = _synonyms(_names(name), layers)
        yield _described(key, None if value is None else key.canonical(value), synonyms)
    given = dict.fromkeys([*layers.static, *layers.cluster, *layers.dynamic])
    for name in given:
        if name not in BROKER_KEYS:
            yield _described_other(name, layers)


def described_build() -> DescribedConfig:
    """The version of this package, as a read-only key of a broker."""
    key = ConfigKey(
        BUILD_VERSION,
        ConfigType.STRING,
        UpdateMode.READ_ONLY,
        doc="The version of Logfleet that the broker runs; it cannot be set.",
        acts_in=__name__,
    )
    return _described(key, __version__, ())


def _described_other(name: str, layers: BrokerLayers) -> DescribedConfig:
    key = base_key(name)
    names = [name] if key is None else [name, key.name]
    synonyms = _synonyms(names, layers)
    if key is None:
        key = ConfigKey(name, ConfigType.UNKNOWN, UpdateMode.READ_ONLY)
        return _described(key, None, synonyms)
    text = layers.set_value(name)
    assert text is not None, "only what is set is described"
    key = msgspec.structs.replace(key, name=name, mode=UpdateMode.READ_ONLY)
    return _described(key, key.canonical(text), synonyms)


def describe_cluster(values: Mapping[str, str]) -> Iterator[DescribedConfig]:
    """The dynamic values of all brokers, as they were set."""
    layers = BrokerLayers(cluster=values)
    for name in values:
        key = base_key(name)
        if key is not None:
            (synonym,) = (
                synonym
                for synonym in _every_synonym([name], layers)
                if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
            )
            if name != key.name:
                key = msgspec.structs.replace(key, name=name, mode=UpdateMode.READ_ONLY)
            yield _described(key, values[name], (synonym,))


def documentation(key: ConfigKey) -> str:
    """The documentation that DescribeConfigs shows for a key; empty for an unknown key."""
    return key.doc if key.has_effect or not key.doc else f"{key.doc} {NO_EFFECT}"


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
    """The key and those used when it is not set, as log.retention.minutes for log.retention.ms."""
    return _FINER_UNITS.get(broker_key, (broker_key,))


def _synonyms(names: Sequence[str], layers: BrokerLayers) -> tuple[ConfigSynonym, ...]:
    found = _every_synonym(names, layers)
    return tuple(itertools.dropwhile(lambda synonym: synonym.name != names[0], found))


def _every_synonym(names: Sequence[str], layers: BrokerLayers) -> list[ConfigSynonym]:
    defaults = {
        name: key.default
        for name in names
        if (key := BROKER_KEYS.get(name)) is not None
        and key.default is not None
        and not key.is_shown_while_set
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
    key = base_key(name)
    return None if key is None or key.is_sensitive else value

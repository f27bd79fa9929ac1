"""Topic configuration: checks of what a user sets, and the values in force on one broker.

Precedence, most specific first: the topic's own value, the broker's dynamic one, the cluster's
dynamic default, the broker's static one, Kafka's default; among broker synonyms `.ms` precedes
`.minutes` and that `.hours` (Kafka: LogConfig, KafkaConfig).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from logfleet.config.keys import (
    BROKER_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigValue,
)

_NOTHING: Mapping[str, str] = {}
_RETENTION: Final = "retention.ms"


class BrokerLayers(msgspec.Struct, frozen=True):
    """A broker's values as text: server.properties, dynamic of cluster, dynamic of broker."""

    static: Mapping[str, str] = _NOTHING
    cluster: Mapping[str, str] = _NOTHING
    dynamic: Mapping[str, str] = _NOTHING

    def effective_value(self, key: str) -> str | None:
        """The text in force for a broker key, or its default; None if it has no value."""
        text = self.set_value(key)
        return BROKER_KEYS[key].default if text is None else text

    def set_value(self, key: str) -> str | None:
        """The text set for a key, in the most specific layer that has it; None if it is not set."""
        for layer in (self.dynamic, self.cluster, self.static):
            if key in layer:
                return layer[key]
        return None


def validate_topic_configs(overrides: Mapping[str, str]) -> None:
    """Raises ConfigError for an unknown key, an invalid value, or contradicting values.

    Messages are those of Kafka's LogConfig.validate, whose error code is INVALID_CONFIG.
    """
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise ConfigError(name, f"Unknown topic config name: {name}")
        values[name] = key.parse(text)
    _check_compaction_lags(values)
    if values.get("remote.storage.enable"):
        raise ConfigError(
            "remote.storage.enable",
            "Tiered Storage functionality is disabled in the broker. Topic cannot be "
            "configured with remote log storage.",
        )


def _check_compaction_lags(values: Mapping[str, ConfigValue]) -> None:
    name_low, name_high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    low = values.get(name_low, TOPIC_KEYS[name_low].parse(TOPIC_KEYS[name_low].default))
    high = values.get(name_high, TOPIC_KEYS[name_high].parse(TOPIC_KEYS[name_high].default))
    assert isinstance(low, int), name_low
    assert isinstance(high, int), name_high
    if low > high:
        raise ConfigError(
            name_low,
            f"conflict topic config setting {name_low} ({low}) > {name_high} ({high})",
        )


def topic_default(name: str, layers: BrokerLayers) -> str | None:
    """The text in force on this broker for topics that do not set `name`, in that key's unit."""
    return source_and_default(name, layers)[1]


def source_and_default(name: str, layers: BrokerLayers) -> tuple[str, str | None]:
    """The key that a topic's default comes from, and its text.

    That is a broker key, or the topic key itself if no broker key has a value.
    """
    for synonym, factor in TOPIC_KEYS[name].sources:
        text = layers.effective_value(synonym)
        if text is not None:
            is_text = factor == 1 and name != _RETENTION
            return synonym, text if is_text else _scaled(synonym, text, factor)
    return name, TOPIC_KEYS[name].default


def _scaled(synonym: str, text: str, factor: int) -> str:
    value = BROKER_KEYS[synonym].parse(text)
    assert isinstance(value, int), f"{synonym} is a number"
    # Any negative time means "for ever", which is -1 in every unit
    # (KafkaConfig.logRetentionTimeMillis).
    return str(value * factor) if value >= 0 else "-1"


def check_topic_defaults(values: Mapping[str, str]) -> None:
    """Raises ConfigError, naming the broker key, if it sets an invalid default for topics."""
    layers = BrokerLayers(values)
    for name, key in TOPIC_KEYS.items():
        if any(synonym in values for synonym, _ in key.sources):
            source, text = source_and_default(name, layers)
            try:
                key.parse(text)
            except ConfigError as error:
                prefix = "" if source == name else f"{source}: "
                raise ConfigError(source, prefix + error.message) from error


def topic_defaults(layers: BrokerLayers) -> dict[str, str | None]:
    """`topic_default` of every topic key.

    Computed once per change of the broker's configuration.
    """
    return {name: topic_default(name, layers) for name in TOPIC_KEYS}


def topic_values(
    overrides: Mapping[str, str], defaults: Mapping[str, str | None]
) -> dict[str, ConfigValue]:
    """Typed value of every topic key.

    `overrides` were validated when they were set; `defaults` as `topic_defaults`.
    """
    return {
        name: key.parse(overrides.get(name, defaults[name])) for name, key in TOPIC_KEYS.items()
    }

"""Meaning of Kafka's configuration keys: type, default, valid values, how they may change, what they stand in for.

The keys themselves are the lines of `config_table`. A value is kept and stored as the text the user gave; `ConfigKey.parse`
turns it into a Python value and is the only judge of what is valid (Kafka: ConfigDef.parseType and its validators).
"""

import enum
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from logfleet.control.config_table import BROKER, TOPIC

ConfigValue = bool | int | float | str | tuple[str, ...] | None

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class ConfigError(ValueError):
    """A configuration value cannot be used. `key` names it; the text is one line for a person and names it too."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


class ConfigType(enum.IntEnum):
    """Types of values, numbered as in DescribeConfigs responses (Kafka: DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(enum.Enum):
    """When a key may change: at start only, per broker while it runs, or (also) for all brokers at once."""

    READ_ONLY = "ro"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster"
    TOPIC = "topic"


_INTEGER_BITS: Final = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


class Valid(msgspec.Struct, frozen=True):
    """Which values of a type are allowed. Bounds are inclusive and None when open; `also` is one value outside them."""

    low: float | None = None
    high: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False

    def check(self, key: str, value: ConfigValue) -> None:
        if self.choices:
            for item in value if isinstance(value, tuple) else (value,):
                if self._folded(str(item)) not in map(self._folded, self.choices):
                    allowed = ", ".join(self.choices)
                    raise invalid(key, item, f"String must be one of: {allowed}")
        elif isinstance(value, int | float) and value != self.also:
            self._check_range(key, value)

    def _folded(self, text: str) -> str:
        return text.lower() if self.any_case else text

    def _check_range(self, key: str, value: float) -> None:
        low, high = self.low, self.high
        if (low is None or value >= low) and (high is None or value <= high):
            return
        if self.also is not None:
            rule = f"Value must be between {low} and {high} or equal to {self.also}"
        elif low is not None and value < low:
            rule = f"Value must be at least {low}"
        else:
            rule = f"Value must be no more than {high}"
        raise invalid(key, value, rule)


class ConfigKey(msgspec.Struct, frozen=True):
    """One configuration key. `default` is the text form, None for no value; `doc` is empty if the key has no effect."""

    name: str
    type: ConfigType
    mode: UpdateMode
    default: str | None
    valid: Valid
    doc: str

    @property
    def is_sensitive(self) -> bool:
        """Its value is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def has_effect(self) -> bool:
        return bool(self.doc)

    def parse(self, text: str | None) -> ConfigValue:
        """The value that `text` stands for; None (no value) stays None. Raises ConfigError."""
        if text is None:
            return None
        value = self._typed(text.strip())
        self.valid.check(self.name, value)
        return value

    def canonical(self, text: str) -> str:
        """The text as Kafka shows it: `TRUE` as `true`, lists without blanks. Raises ConfigError."""
        match self.parse(text):
            case bool(value):
                return "true" if value else "false"
            case int(value):
                return str(value)
            case tuple(value):
                return ",".join(value)
        return text.strip()

    def _typed(self, text: str) -> ConfigValue:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in {"true", "false"}:
                    raise invalid(self.name, text, "Expected value to be either true or false")
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                bound = 1 << _INTEGER_BITS[self.type]
                if not _INTEGER.fullmatch(text) or not -bound <= int(text) < bound:
                    raise invalid(self.name, text, f"Not a number of type {self.type.name}")
                return int(text)
            case ConfigType.DOUBLE:
                if not _FLOAT.fullmatch(text):
                    raise invalid(self.name, text, "Not a number of type DOUBLE")
                return float(text)
            case ConfigType.LIST:
                return parse_list(self.name, text)
            case _:
                return text


def invalid(key: str, value: object, rule: str) -> ConfigError:
    return ConfigError(key, f"Invalid value {value} for configuration {key}: {rule}")


def parse_list(key: str, text: str) -> tuple[str, ...]:
    """Items between commas, trimmed, duplicates dropped (KIP-1161). Raises ConfigError for an empty item."""
    if not text.strip():
        return ()
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise ConfigError(key, f"Configuration '{key}' values must not be empty.")
    return tuple(dict.fromkeys(items))


def _parse_valid(text: str) -> Valid:
    if text.startswith("{"):
        body, _, flag = text[1:].partition("}")
        return Valid(choices=tuple(body.split(",")), any_case=flag == "i")
    bounds, _, also = text.partition("|")
    low, _, high = bounds.partition("..")
    return Valid(
        low=_number(low) if low else None,
        high=_number(high) if high else None,
        also=int(also) if also else None,
    )


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _parse_line(line: str, *, has_mode: bool) -> ConfigKey:
    facts, _, doc = line.partition(" | ")
    name, type_name, *rest = facts.split()
    mode = UpdateMode(rest.pop(0)) if has_mode else UpdateMode.TOPIC
    default = {"null": None, '""': ""}.get(rest[0], rest[0])
    valid = _parse_valid(rest[1]) if len(rest) > 1 else Valid()
    return ConfigKey(name, ConfigType[type_name], mode, default, valid, doc)


def _parse_table(text: str, *, has_mode: bool) -> dict[str, ConfigKey]:
    keys = (_parse_line(line, has_mode=has_mode) for line in text.strip().splitlines())
    return {key.name: key for key in keys}


TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = _parse_table(TOPIC, has_mode=False)
BROKER_KEYS: Final[Mapping[str, ConfigKey]] = _parse_table(BROKER, has_mode=True)

_HOUR_MS = 3_600_000
_SYNONYMS_OF_ANOTHER_NAME: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", _HOUR_MS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
}


def _synonyms(topic_key: str) -> tuple[tuple[str, int], ...]:
    if topic_key in _SYNONYMS_OF_ANOTHER_NAME:
        return _SYNONYMS_OF_ANOTHER_NAME[topic_key]
    for name in (topic_key, f"log.{topic_key}"):
        if name in BROKER_KEYS:
            return ((name, 1),)
    return ()


# Topic key -> broker keys that set its default, most specific first, each with the factor from its unit to the
# topic key's (Kafka: ServerTopicConfigSynonyms). Per-topic keys such as throttled replicas have none.
TOPIC_SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    name: _synonyms(name) for name in TOPIC_KEYS
}

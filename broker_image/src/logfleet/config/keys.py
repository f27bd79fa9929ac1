"""Meaning of Kafka's configuration keys.

Type, default, valid values, when they may change, sources.

The keys themselves are the lines of `config.table`. A value is kept and stored as the text the user
gave; `ConfigKey.parse` turns it into a Python value and alone decides whether it is valid (Kafka:
ConfigDef.parseType and its validators).
"""

import enum
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from logfleet.config.table import BROKER, GROUP, TOPIC

ConfigValue = bool | int | float | str | tuple[str, ...] | None

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?)"
)
_THROTTLED_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
_DURATION = re.compile(
    r"by_duration:P(?=[0-9T])(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]{1,9})?S)?)?"
)


class ConfigError(ValueError):
    """A configuration value cannot be used.

    `key` names the key; the message is one line and names it too.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


class UnavailableProtection(ConfigError):
    """A value asks for protection that this version does not have."""


class ConfigType(enum.IntEnum):
    """Types of values, numbered as in DescribeConfigs responses.

    Kafka: DescribeConfigsResponse.ConfigType.
    """

    UNKNOWN = 0
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
    """When a key may change: at start only, per broker while it runs, or for all brokers too."""

    READ_ONLY = "ro"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster"
    TOPIC = "topic"
    GROUP = "group"


class Importance(enum.Enum):
    """How likely it is that a user has to set a key (Kafka: ConfigDef.Importance)."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


_INTEGER_BITS: Final = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}


class Valid(msgspec.Struct, frozen=True):
    """Which values of a type are allowed.

    Bounds are inclusive, None if open; `also` is one value allowed outside them. rule: name of a
    special rule in `_RULES`, else empty. drops_repeated: a repeated item of a list is dropped
    instead of refused.
    """

    low: float | None = None
    high: float | None = None
    also: int | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    drops_repeated: bool = False
    rule: str = ""

    def check(self, key: str, value: ConfigValue) -> None:
        if self.rule:
            _RULES[self.rule](key, value)
        elif isinstance(value, tuple):
            self._check_list(key, value)
        elif self.choices:
            self._check_choice(key, str(value))
        elif isinstance(value, int | float) and value != self.also:
            self._check_range(key, value)

    def __str__(self) -> str:
        """The text for the documentation; empty if every value of the type is valid."""
        if self.rule:
            return {"replicas": "partition:broker, ... or *", "nonempty": "not empty"}.get(
                self.rule, "earliest, latest, by_duration:PnDTnHnMn.nS"
            )
        if self.choices:
            return ", ".join(self.choices)
        if self.low is None and self.high is None:
            return ""
        bounds = f"{'' if self.low is None else self.low}..{'' if self.high is None else self.high}"
        return bounds if self.also is None else f"{bounds} or {self.also}"

    def _check_list(self, key: str, items: tuple[str, ...]) -> None:
        """Kafka: ConfigDef.ValidList (KIP-1161)."""
        if len(set(items)) < len(items):
            raise ConfigError(key, f"Configuration '{key}' values must not be duplicated.")
        for item in items:
            if not item:
                raise ConfigError(key, f"Configuration '{key}' values must not be empty.")
            if self.choices:
                self._check_choice(key, item)

    def _check_choice(self, key: str, text: str) -> None:
        if self._folded(text) not in map(self._folded, self.choices):
            raise invalid(key, text, f"String must be one of: {', '.join(self.choices)}")

    def _folded(self, text: str) -> str:
        return text.lower() if self.any_case else text

    def _check_range(self, key: str, value: float) -> None:
        low, high = self.low, self.high
        below, above = low is not None and value < low, high is not None and value > high
        if not below and not above:  # in this form NaN is accepted, as in Kafka
            return
        if self.also is not None:
            rule = f"Value must be between {low} and {high} or equal to {self.also}"
        elif below:
            rule = f"Value must be at least {low}"
        else:
            rule = f"Value must be no more than {high}"
        raise invalid(key, java_text(value), rule)


class ConfigKey(msgspec.Struct, frozen=True):
    """One configuration key.

    default: the text form, None for no value. doc: a sentence for users. acts_in: the module of
    logfleet that acts on it, empty if the key has no effect in this version. sources: the broker
    keys used while it is not set, most specific first, each with the factor from its unit to this
    key's (Kafka: ServerTopicConfigSynonyms, GroupConfig); empty for a broker key.
    is_shown_while_set: DescribeConfigs shows it only while it is set (Kafka: DynamicConfig.Broker).
    harmless: None, but for a key that can ask for protection that this version does not have: then
    the values that ask for none, beside the default and the empty text.
    """

    name: str
    type: ConfigType
    mode: UpdateMode
    importance: Importance = Importance.LOW
    default: str | None = None
    valid: Valid = Valid()
    doc: str = ""
    acts_in: str = ""
    sources: tuple[tuple[str, int], ...] = ()
    is_shown_while_set: bool = False
    harmless: tuple[str, ...] | None = None

    @property
    def is_sensitive(self) -> bool:
        """Whether the key's value is never shown."""
        return self.type in {ConfigType.PASSWORD, ConfigType.UNKNOWN}

    @property
    def has_effect(self) -> bool:
        return bool(self.acts_in)

    def parse(self, text: str | None) -> ConfigValue:
        """The value that `text` stands for; None (no value) stays None.

        Raises ConfigError, UnavailableProtection.
        """
        if self.harmless is not None and not (text or "").strip():
            text = self.default
        if text is None:
            return None
        value = self._typed(text.strip())
        self.valid.check(self.name, value)
        self._refuse_unavailable(value)
        return value

    def _refuse_unavailable(self, value: ConfigValue) -> None:
        if self.harmless is None or str(value).lower() in {
            *self.harmless,
            str(self.default).lower(),
        }:
            return
        raise UnavailableProtection(
            self.name,
            f"{self.name} asks for protection that this version does not have, and clients "
            "could do more than it lets them: "
            "take it out of the configuration if that is meant (on the command line: "
            f"--override {self.name}=)",
        )

    def canonical(self, text: str) -> str:
        """The text as Kafka shows it: `TRUE` as `true`, `.5` as `0.5`, lists without blanks.

        Raises ConfigError.
        """
        match self.parse(text):
            case bool(value):
                return "true" if value else "false"
            case int(value) | float(value):
                return java_text(value)
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
                return float(text.rstrip("dDfF"))
            case ConfigType.LIST:
                items = parse_list(text)
                return tuple(dict.fromkeys(items)) if self.valid.drops_repeated else items
            case _:
                return text


def invalid(key: str, value: object, rule: str) -> ConfigError:
    return ConfigError(key, f"Invalid value {value} for configuration {key}: {rule}")


def canonical_values(
    values: Mapping[str, str], find: Callable[[str], ConfigKey | None]
) -> dict[str, str]:
    """`values` with each text as DescribeConfigs shows it.

    find: the key of a name, None if there is none. An unknown key or invalid value keeps its text:
    brokers, perhaps of another version, decide about it.
    """
    spelled = {}
    for name, text in values.items():
        key = find(name)
        try:
            spelled[name] = text if key is None else key.canonical(text)
        except ConfigError:
            spelled[name] = text
    return spelled


def parse_list(text: str) -> tuple[str, ...]:
    """The items between commas, trimmed."""
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


def java_text(value: float) -> str:
    """A number as Java prints it (Double.toString).

    Exponents below 0.001 and from ten million on.
    """
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


def _check_replicas(key: str, value: ConfigValue) -> None:
    assert isinstance(value, tuple), f"{key} is a list"
    if value != ("*",) and not all(map(_THROTTLED_REPLICA.fullmatch, value)):
        rule = (
            f"{key} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
        raise invalid(key, f"[{', '.join(value)}]", rule)


def _check_not_empty(key: str, value: ConfigValue) -> None:
    if value == "":
        raise invalid(key, value, "String must be non-empty")


def _check_offset_reset(key: str, value: ConfigValue) -> None:
    text = str(value)
    if text not in {"earliest", "latest"} and not _DURATION.fullmatch(text):
        rule = (
            f"Invalid value `{text}` for configuration {key}. The value must be either "
            "'earliest', 'latest' or of the "
            "format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise invalid(key, text, rule)


_RULES: Final[Mapping[str, Callable[[str, ConfigValue], None]]] = {
    "replicas": _check_replicas,
    "nonempty": _check_not_empty,
    "offset-reset": _check_offset_reset,
}


def _parse_valid(text: str) -> Valid:
    if text in _RULES:
        return Valid(rule=text)
    if text.startswith("{"):
        body, _, flag = text[1:].partition("}")
        return Valid(
            choices=tuple(body.split(",")), any_case=flag == "i", drops_repeated=flag == "d"
        )
    bounds, _, also = text.partition("|")
    low, _, high = bounds.partition("..")
    return Valid(
        low=_number(low) if low else None,
        high=_number(high) if high else None,
        also=int(also) if also else None,
    )


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _parse_line(line: str, mode: UpdateMode | None) -> ConfigKey:
    facts, *segments = line.split(" | ")
    name, type_name, *rest = facts.split()
    while_set = False
    if mode is None:
        text = rest.pop(0)
        mode, while_set = UpdateMode(text.rstrip("?")), text.endswith("?")
    importance, default, *valid = rest
    doc = acts_in = sources = ""
    harmless: tuple[str, ...] | None = None
    for segment in segments:
        if segment.startswith("refused unless "):
            values = parse_list(segment.removeprefix("refused unless "))
            harmless = tuple(value for value in values if value != "default")
        elif segment.startswith("in "):
            acts_in = segment.removeprefix("in ")
        elif segment.startswith("from "):
            sources = segment.removeprefix("from ")
        else:
            doc = segment
    return ConfigKey(
        name,
        ConfigType[type_name],
        mode,
        Importance(importance),
        {"null": None, '""': ""}.get(default, default),
        _parse_valid(valid[0]) if valid else Valid(),
        doc,
        acts_in,
        tuple(map(_parse_source, sources.split())),
        while_set,
        harmless,
    )


def _parse_source(text: str) -> tuple[str, int]:
    name, _, factor = text.partition("*")
    return name, int(factor or 1)


def _parse_table(text: str, mode: UpdateMode | None) -> dict[str, ConfigKey]:
    keys = (_parse_line(line, mode) for line in text.splitlines() if line)
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}


def _with_topic_docs(
    brokers: dict[str, ConfigKey], topics: Mapping[str, ConfigKey]
) -> dict[str, ConfigKey]:
    """Return the broker keys with documentation from topic keys.

    One without a sentence takes it, and its effect, from the topic key it defaults.
    """
    for topic in topics.values():
        for name, factor in topic.sources:
            if not brokers[name].doc:
                doc = f"Default of the topic key {topic.name}" + _UNITS[factor]
                brokers[name] = msgspec.structs.replace(
                    brokers[name], doc=doc, acts_in=topic.acts_in
                )
    return brokers


_UNITS: Final = {
    1: ".",
    60_000: ", in minutes; used while no finer unit is set.",
    3_600_000: ", in hours; used while no finer unit is set.",
}

TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = _parse_table(TOPIC, UpdateMode.TOPIC)
GROUP_KEYS: Final[Mapping[str, ConfigKey]] = _parse_table(GROUP, UpdateMode.GROUP)
BROKER_KEYS: Final[Mapping[str, ConfigKey]] = _with_topic_docs(
    _parse_table(BROKER, None), TOPIC_KEYS
)

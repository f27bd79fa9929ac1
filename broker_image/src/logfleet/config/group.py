"""Configuration of groups (KIP-848, KIP-932, KIP-1071): checks of the values that a user sets.

A group's value must lie within bounds that the brokers set. Messages are those of Kafka's
GroupConfig.validate, whose error code is INVALID_CONFIG. The group protocols themselves come later:
until then values are only stored and described.
"""

from collections.abc import Mapping
from typing import Final

from logfleet.config.keys import BROKER_KEYS, GROUP_KEYS, ConfigError, ConfigValue
from logfleet.config.topic import BrokerLayers

# Group key -> the broker keys of its smallest (None: no such bound) and largest value.
_BOUNDS: Final[Mapping[str, tuple[str | None, str]]] = {
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.session.timeout.ms": (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    "share.heartbeat.interval.ms": (
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "share.session.timeout.ms": (
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "share.assignment.interval.ms": (
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "streams.heartbeat.interval.ms": (
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    "streams.session.timeout.ms": (
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
    "streams.assignment.interval.ms": (
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
}
_INTERNAL_PREFIX: Final = "__"


def validate_group_configs(overrides: Mapping[str, str], layers: BrokerLayers) -> None:
    """Raises ConfigError for an unknown key, or an invalid value or one outside the bounds."""
    for name in overrides:
        if name not in GROUP_KEYS:
            raise ConfigError(name, f"Unknown group config name: {name}")
    _check_tags(overrides)
    values = {name: GROUP_KEYS[name].parse(text) for name, text in overrides.items()}
    for name, (low, high) in _BOUNDS.items():
        if name in values:
            _check_bounds(name, values[name], low and _broker(low, layers), _broker(high, layers))
    _check_assignor(values, layers)
    for kind in ("consumer", "share", "streams"):
        _check_heartbeats(kind, values, layers)
    dead_letters = "errors.deadletterqueue.topic.name"
    if str(values.get(dead_letters, "")).startswith(_INTERNAL_PREFIX):
        message = f"{dead_letters}: DLQ topic name must not start with '{_INTERNAL_PREFIX}'"
        raise ConfigError(dead_letters, message)


def _broker(key: str, layers: BrokerLayers) -> ConfigValue:
    return BROKER_KEYS[key].parse(layers.effective_value(key))


def _check_bounds(name: str, value: ConfigValue, low: ConfigValue, high: ConfigValue) -> None:
    assert isinstance(value, int), name
    assert isinstance(high, int), name
    if low is None:
        if value > high:
            raise ConfigError(name, f"{name} must be less than or equal to {high}")
        return
    assert isinstance(low, int), name
    if not low <= value <= high:
        raise ConfigError(name, f"{name} must be in the range {low} to {high} inclusive.")


def _check_tags(overrides: Mapping[str, str]) -> None:
    name = "streams.rack.aware.assignment.tags"
    tags = [tag.strip() for tag in overrides.get(name, "").split(",")]
    if len(set(tags)) < len(tags):
        raise ConfigError(name, f"{name} must not contain duplicate tag keys.")


def _check_assignor(values: Mapping[str, ConfigValue], layers: BrokerLayers) -> None:
    name = "streams.assignor.name"
    known = _broker("group.streams.assignors", layers)
    assert isinstance(known, tuple), "group.streams.assignors is a list"
    if name in values and values[name] not in known:
        raise ConfigError(
            name,
            f"{name} '{values[name]}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(known)}].",
        )


def _check_heartbeats(kind: str, values: Mapping[str, ConfigValue], layers: BrokerLayers) -> None:
    """A session timeout must be longer than the time between two heartbeats."""
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    if session not in values and heartbeat not in values:
        return
    session_ms = values.get(session, _broker(f"group.{session}", layers))
    heartbeat_ms = values.get(heartbeat, _broker(f"group.{heartbeat}", layers))
    assert isinstance(session_ms, int), session
    assert isinstance(heartbeat_ms, int), heartbeat
    if session_ms <= heartbeat_ms:
        raise ConfigError(session, f"{session} must be greater than {heartbeat}")

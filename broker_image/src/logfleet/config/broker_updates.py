"""Which configuration of a broker may change while it runs, and to what.

Rules, their order and texts are those of Kafka's DynamicBrokerConfig (validateConfigs,
DynamicListenerConfig, DynamicLogConfig) and ConfigurationControlManager (min.insync.replicas,
KAFKA-16540). Unlike Kafka, unknown keys are refused: no plugin could read them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from logfleet.config.connection_limits import OF_ONE_LISTENER, parse_ip_overrides
from logfleet.config.keys import (
    BROKER_KEYS,
    ConfigError,
    ConfigKey,
    UnavailableProtection,
    UpdateMode,
)
from logfleet.config.server_properties.variables import refuse_variables
from logfleet.config.topic import BrokerLayers, check_topic_defaults, source_and_default
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

MIN_ISR: Final = "min.insync.replicas"
_LISTENER_KEY = re.compile(r"listener\.name\.([^.]+)\.(.+)")
# Keys that may have a listener's prefix in the configuration of all brokers too (Kafka:
# CLUSTER_LEVEL_LISTENER_CONFIGS).
_CLUSTER_LEVEL_LISTENER: Final = {*OF_ONE_LISTENER, "num.network.threads"}
# Kafka: SslConfigs.RECONFIGURABLE_CONFIGS
_BY_LISTENER_ONLY: Final = {
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
}


def base_key(name: str) -> ConfigKey | None:
    """The broker key that a name stands for, with or without a listener's prefix.

    None if there is none.
    """
    key = BROKER_KEYS.get(name)
    if key is None and (match := _LISTENER_KEY.fullmatch(name)):
        key = BROKER_KEYS.get(match[2])
    return key


def refuse_broker_configs(values: Mapping[str, str], *, is_default: bool) -> Refusal | None:
    """Why these cannot be all the dynamic values of a broker; None if they can be.

    is_default: they are the values of all brokers.
    """
    unknown = [name for name in values if base_key(name) is None]
    if unknown:
        message = f"Unknown broker config name: {', '.join(unknown)}"
        return Refusal(ErrorCode.INVALID_CONFIG, message)
    return (
        _refuse(
            "Cannot update these configs dynamically",
            (
                name
                for name in values
                if name in BROKER_KEYS and BROKER_KEYS[name].mode is UpdateMode.READ_ONLY
            ),
        )
        or _refuse(
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix",
            (name for name in values if name in _BY_LISTENER_ONLY),
        )
        or _refuse_values(values)
        or (_refuse_at_cluster_level(values) if is_default else _refuse_min_isr(values))
    )


def _refuse(sentence: str, names: Iterable[str]) -> Refusal | None:
    found = ", ".join(names)
    return Refusal(ErrorCode.INVALID_REQUEST, f"{sentence}: [{found}]") if found else None


def _refuse_at_cluster_level(values: Mapping[str, str]) -> Refusal | None:
    return _refuse(
        "Cannot update these configs at default cluster level, broker id must be specified",
        (name for name in values if not _may_be_default(name)),
    )


def _may_be_default(name: str) -> bool:
    if name in BROKER_KEYS:
        return BROKER_KEYS[name].mode is UpdateMode.CLUSTER_WIDE
    match = _LISTENER_KEY.fullmatch(name)
    return match is not None and match[2] in _CLUSTER_LEVEL_LISTENER


def _refuse_min_isr(values: Mapping[str, str]) -> Refusal | None:
    if MIN_ISR not in values:
        return None
    message = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
    return Refusal(ErrorCode.INVALID_CONFIG, message)


def _refuse_values(values: Mapping[str, str]) -> Refusal | None:
    try:
        refuse_variables(values)
        for name, text in values.items():
            check_value(name, text)
        check_together(values)
    except ConfigError as error:
        return Refusal(ErrorCode.INVALID_REQUEST, error.message)
    return None


def check_value(name: str, text: str) -> None:
    """Check the value of a key that exists, apart from all other keys.

    Raises ConfigError, UnavailableProtection.
    """
    key = base_key(name)
    assert key is not None, f"{name} is not a key"
    try:
        key.parse(text)
    except UnavailableProtection as error:
        raise UnavailableProtection(name, error.message.replace(key.name, name)) from error


def problem_of(name: str, text: str) -> ConfigError | None:
    """Why a key cannot have this value, apart from all other keys; None if it can or is unknown."""
    try:
        if base_key(name) is not None:
            refuse_variables({name: text})
            check_value(name, text)
            _check_meaning({name: text})
    except ConfigError as error:
        return error
    return None


def check_together(values: Mapping[str, str]) -> None:
    """Check rules beyond the type and range of one key. Raises ConfigError."""
    _check_meaning(values)
    per_ip, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    if per_ip in values and int(values[per_ip]) == 0 and not values.get(overrides, "").strip():
        raise ConfigError(
            per_ip,
            f"requirement failed: {per_ip} can be set to zero only if {overrides} property is set.",
        )


def _check_meaning(values: Mapping[str, str]) -> None:
    """The part of `check_together` that concerns single values."""
    # the finest of three units that is set (Kafka: validateLogConfig, logRetentionTimeMillis); a
    # topic itself may set 0
    source, retention_ms = source_and_default("retention.ms", BrokerLayers(values))
    if retention_ms == "0":
        finest = "log.retention.ms"
        prefix = "" if source == finest else f"{source}: "
        raise ConfigError(
            source,
            f"{prefix}requirement failed: {finest} must be unlimited (-1) or, greater than or "
            "equal to 1",
        )
    for name, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        if name in values and int(values[name]) < low:
            raise ConfigError(
                name, f"requirement failed: {name} must be greater than or equal to {low}"
            )
    check_topic_defaults(values)
    parse_ip_overrides(values.get("max.connections.per.ip.overrides", ""))
    for name, text in values.items():
        key = base_key(name)
        if key is not None and key.name in OF_ONE_LISTENER and int(text) == 0:
            raise ConfigError(name, f"Invalid {name} 0: it must be at least 1")

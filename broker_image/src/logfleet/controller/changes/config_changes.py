"""IncrementalAlterConfigs and AlterConfigs for topics, brokers and groups.

Computes the new values, makes Kafka's checks and builds the transaction. Sources: KIP-339,
KIP-1043; Kafka's ConfigAdminManager (null values, duplicates, lists of brokers),
ConfigurationControlManager (lists of topics). `broker_configs` and `group_configs` hold the rules
for values of a broker and of a group.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from logfleet.config.broker_updates import base_key, refuse_broker_configs
from logfleet.config.group import validate_group_configs
from logfleet.config.keys import (
    TOPIC_KEYS,
    ConfigError,
    ConfigKey,
    ConfigType,
)
from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.changes.topics import name_problem, refuse_length, refuse_topic_configs
from logfleet.metadata.image import ClusterImage, StoredConfigs
from logfleet.metadata.kind import Kind
from logfleet.metadata.kinds.configs import BROKER_CONFIG, GROUP_CONFIG, ConfigValue
from logfleet.metadata.kinds.topics import TOPIC, TopicValue
from logfleet.metadata.store import Txn
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

K = TypeVar("K")


class ConfigOperation(enum.IntEnum):
    """Numbered as in IncrementalAlterConfigs requests (Kafka: AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True):
    """One change. operation: the number in the request. value: ignored by DELETE."""

    name: str
    operation: int
    value: str | None = None


def alter_topic_configs(
    image: ClusterImage,
    epoch: int,
    name: str,
    changes: Sequence[ConfigChange],
    *,
    replaces: bool = False,
) -> tuple[Txn, ...] | Refusal:
    """The transaction that applies `changes` to a topic's configs; none if that changes nothing.

    replaces: keys that are not named go back to their defaults (AlterConfigs) instead of staying as
    they are.

    As in Kafka, a bad change is reported before a bad name, and a missing topic last
    (ConfigurationControlManager.validateAlterConfig).
    """
    topic = image.topic(name)
    values = _changed({} if replaces or topic is None else topic.configs, changes, _topic_list)
    if isinstance(values, Refusal):
        return values
    refusal = _refuse_resource(name) or refuse_topic_configs(values)
    if refusal is not None:
        return refusal
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if values == topic.configs:
        return ()
    value = TopicValue(uuids.to_text(topic.id), values)
    return pack(epoch, [TOPIC.change(name, value, topic.revision)])


def _refuse_resource(name: str) -> Refusal | None:
    """Why configs of a topic with this name cannot be changed; None if they can."""
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = name_problem(name)
    return None if problem is None else Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def alter_broker_configs(
    image: ClusterImage,
    epoch: int,
    broker_id: int | None,
    changes: Sequence[ConfigChange],
    *,
    replaces: bool = False,
) -> tuple[Txn, ...] | Refusal:
    """As `alter_topic_configs`, for one registered broker, or for all if broker_id is None."""
    if broker_id is not None and broker_id not in image.brokers:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is not registered.")
    present = image.configs_of_broker(broker_id)
    values = _changed({} if replaces else present.values, changes, _broker_list)
    if isinstance(values, Refusal):
        return values
    is_default = broker_id is None
    refusal = refuse_broker_configs(values, is_default=is_default) or refuse_length(
        "Broker", values
    )
    return refusal or _store(epoch, BROKER_CONFIG, broker_id, present, values)


def alter_group_configs(
    image: ClusterImage,
    epoch: int,
    group: str,
    changes: Sequence[ConfigChange],
    *,
    layers: BrokerLayers,
    replaces: bool = False,
) -> tuple[Txn, ...] | Refusal:
    """As `alter_topic_configs`, for a group, whether it exists or not (KIP-1043).

    layers: the brokers' values, which bound the group's.
    """
    if not group:
        return Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    present = image.configs_of_group(group)
    values = _changed({} if replaces else present.values, changes, _group_list)
    if isinstance(values, Refusal):
        return values
    try:
        validate_group_configs(values, layers)
    except ConfigError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, error.message)
    refusal = refuse_length("Group", values, group)
    return refusal or _store(epoch, GROUP_CONFIG, group, present, values)


def _store(
    epoch: int, kind: Kind[K, ConfigValue], key: K, present: StoredConfigs, values: ConfigValue
) -> tuple[Txn, ...]:
    if values == present.values:
        return ()
    return pack(epoch, [kind.change(key, values or None, present.revision)])


def refuse_malformed_changes(changes: Sequence[ConfigChange]) -> Refusal | None:
    """Why these changes are refused for any resource (Kafka: ConfigAdminManager.preprocess)."""
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        return Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        change.name
        for change in changes
        if change.value is None and change.operation != ConfigOperation.DELETE
    ]
    if nulls:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}"
        )
    return None


def _changed(
    present: Mapping[str, str],
    changes: Sequence[ConfigChange],
    list_key: Callable[[str, ConfigOperation], ConfigKey | Refusal],
) -> dict[str, str] | Refusal:
    refusal = refuse_malformed_changes(changes)
    if refusal is not None:
        return refusal
    values = dict(present)
    for change in changes:
        text = change.value or ""
        match change.operation:
            case ConfigOperation.SET:
                values[change.name] = text
            case ConfigOperation.DELETE:
                values.pop(change.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                key = list_key(change.name, ConfigOperation(change.operation))
                if isinstance(key, Refusal):
                    return key
                old = values.get(change.name, key.default) or ""
                values[change.name] = _edited(old, text, change.operation)
            case _:
                return Refusal(
                    ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}"
                )
    return values


def _topic_list(name: str, operation: ConfigOperation) -> ConfigKey | Refusal:
    """The key, if its values are lists (Kafka: ConfigurationControlManager)."""
    key = TOPIC_KEYS.get(name)
    if key is not None and key.type is ConfigType.LIST:
        return key
    message = f"Can't {operation.name} to key {name} because its type is not LIST."
    return Refusal(ErrorCode.INVALID_CONFIG, message)


def _group_list(name: str, operation: ConfigOperation) -> ConfigKey | Refusal:
    """Always a refusal: Kafka's controller does not know the types of group keys."""
    message = f"Can't {operation.name} to key {name} because its type is not LIST."
    return Refusal(ErrorCode.INVALID_CONFIG, message)


def _broker_list(name: str, operation: ConfigOperation) -> ConfigKey | Refusal:
    """As `_topic_list`, with the messages that Kafka has for brokers (ConfigAdminManager)."""
    key = base_key(name)
    if key is None:
        return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown config name: {name}")
    if key.type is ConfigType.LIST:
        return key
    message = f"Config value {operation.name.lower()} is not allowed for config key: {name}"
    return Refusal(ErrorCode.INVALID_CONFIG, message)


def _edited(old: str, text: str, operation: int) -> str:
    """The list with the items of `text` appended or subtracted.

    An empty item is appended too and then refused, as in Kafka. Blanks around items are ignored.
    """
    items = [item.strip() for item in old.split(",") if item.strip()]
    named = [item.strip() for item in text.rstrip(",").split(",")]
    if operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys(items + named))
    taken = set(named)
    return ",".join(item for item in items if item not in taken)

"""IncrementalAlterConfigs and AlterConfigs for topics and brokers: what the values become, Kafka's checks, the transaction.

Sources: KIP-339; Kafka's ConfigAdminManager (null values, duplicates), ConfigurationControlManager (lists) and DynamicBrokerConfig
(what may change while a broker runs). Unlike Kafka, a broker key that nobody knows is refused: no plugin could want it.
"""

import enum
from collections.abc import Mapping, Sequence

import msgspec

from logfleet.control.config_keys import (
    BROKER_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigKey,
    ConfigType,
    UpdateMode,
)
from logfleet.control.topics import refuse_topic_configs
from logfleet.control.transactions import Refusal, Step, pack
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.keys import TopicValue
from logfleet.metadata.store import Delete, Put, Txn, modified_at
from logfleet.wire import uuids
from logfleet.wire.errors import ErrorCode


class ConfigOperation(enum.IntEnum):
    """Numbered as in IncrementalAlterConfigs requests (Kafka: AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True):
    """operation: the number in the request. value: ignored by DELETE."""

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
    """The transaction that makes a topic's configs what `changes` say; none if that changes nothing.

    replaces: keys that are not named go back to their defaults (AlterConfigs), instead of staying as they are.
    """
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    topic = image.topic(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    values = _changed({} if replaces else topic.configs, changes, TOPIC_KEYS)
    refusal = values if isinstance(values, Refusal) else refuse_topic_configs(values)
    if refusal is not None:
        return refusal
    assert not isinstance(values, Refusal)
    if values == topic.configs:
        return ()
    key = keys.topic(name)
    write = Put(key, keys.encode(TopicValue(uuids.to_text(topic.id), values)))
    return pack(epoch, [Step(write, (modified_at(key, topic.revision),))])


def alter_broker_configs(
    image: ClusterImage,
    epoch: int,
    broker_id: int | None,
    changes: Sequence[ConfigChange],
    *,
    replaces: bool = False,
) -> tuple[Txn, ...] | Refusal:
    """As `alter_topic_configs`, for one registered broker, or for all where broker_id is None."""
    if broker_id is not None and broker_id not in image.brokers:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is not registered.")
    present = image.configs_of_broker(broker_id)
    values = _changed({} if replaces else present.values, changes, BROKER_KEYS)
    refusal = values if isinstance(values, Refusal) else _refuse_broker(values, broker_id)
    if refusal is not None:
        return refusal
    assert not isinstance(values, Refusal)
    if values == present.values:
        return ()
    key = keys.broker_config(broker_id)
    write = Put(key, keys.encode(values)) if values else Delete(key)
    return pack(epoch, [Step(write, (modified_at(key, present.revision),))])


def _changed(
    present: Mapping[str, str],
    changes: Sequence[ConfigChange],
    definitions: Mapping[str, ConfigKey],
) -> dict[str, str] | Refusal:
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
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}"
        )
    values = dict(present)
    for change in changes:
        text = change.value or ""
        match change.operation:
            case ConfigOperation.SET:
                values[change.name] = text
            case ConfigOperation.DELETE:
                values.pop(change.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                definition = definitions.get(change.name)
                if definition is None or definition.type is not ConfigType.LIST:
                    operation = ConfigOperation(change.operation).name
                    return Refusal(
                        ErrorCode.INVALID_CONFIG,
                        f"Can't {operation} to key {change.name} because its type is not LIST.",
                    )
                old = values.get(change.name, definition.default) or ""
                values[change.name] = _edited(old, text, change.operation)
            case _:
                return Refusal(
                    ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}"
                )
    return values


def _edited(old: str, text: str, operation: int) -> str:
    items = [item.strip() for item in old.split(",") if item.strip()]
    named = [item.strip() for item in text.split(",") if item.strip()]
    if operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys(items + named))
    return ",".join(item for item in items if item not in named)


def _refuse_broker(values: Mapping[str, str], broker_id: int | None) -> Refusal | None:
    unknown = [name for name in values if name not in BROKER_KEYS]
    if unknown:
        return Refusal(
            ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {', '.join(unknown)}"
        )
    fixed = [name for name in values if BROKER_KEYS[name].mode is UpdateMode.READ_ONLY]
    if fixed:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{', '.join(fixed)}]",
        )
    single = [name for name in values if BROKER_KEYS[name].mode is UpdateMode.PER_BROKER]
    if single and broker_id is None:
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs at default cluster level: [{', '.join(single)}]",
        )
    try:
        for name, text in values.items():
            BROKER_KEYS[name].parse(text)
    except ConfigError as error:
        return Refusal(ErrorCode.INVALID_REQUEST, error.message)
    return None

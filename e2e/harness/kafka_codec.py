"""Kafka's own message classes in a JVM: the oracle for every (message, version) pair of our table.

Kafka's generated classes parse our bytes, return the fields that they read, and encode the message
again. The jars are those of the Kafka broker that the other suites run.
"""

import base64
import json
from typing import Any

import msgspec
from logfleet.wire.schema import Field, load_table

from e2e.harness.jvm import Jvm

GROUP_PACKAGE = "org.apache.kafka.coordinator.group.generated"
TRANSACTION_PACKAGE = "org.apache.kafka.coordinator.transaction.generated"
METADATA_PACKAGE = "org.apache.kafka.common.metadata"
MESSAGE_PACKAGE = "org.apache.kafka.common.message"


class KafkaCodec(Jvm):
    """A JVM with Kafka's message classes, until the block ends."""

    def __init__(self) -> None:
        super().__init__("broker")

    def reencode(self, name: str, version: int, written: bytes) -> tuple[bytes, dict[str, Any]]:
        """Have Kafka parse `written`.

        Return its own encoding, and the fields by Kafka's JSON converter.

        Raises AssertionError if Kafka leaves bytes unread, and py4j's Py4JJavaError if it cannot
        parse them.
        """
        class_name = kafka_class(name)
        protocol = self.classes.org.apache.kafka.common.protocol
        buffer = self.classes.java.nio.ByteBuffer.wrap(written)
        message = getattr(self.classes, class_name)(protocol.ByteBufferAccessor(buffer), version)
        assert buffer.remaining() == 0, f"{name} {version}: Kafka left {buffer.remaining()} bytes"
        again = protocol.MessageUtil.toByteBufferAccessor(message, version).buffer().array()
        converter = getattr(self.classes, class_name + "JsonConverter")
        fields = json.loads(
            converter.write(message, version).toString(), object_hook=_without_records
        )
        return bytes(again), fields


def kafka_class(name: str) -> str:
    """Return the full name of Kafka's class for one of our messages."""
    kind = load_table()[name].kind
    if kind.startswith("coordinator"):
        package = TRANSACTION_PACKAGE if name.startswith("TransactionLog") else GROUP_PACKAGE
        return f"{package}.{name}"
    if kind == "metadata":
        return f"{METADATA_PACKAGE}.{name}"
    has_suffix = kind in {"request", "response"} or kind == "header"
    return f"{MESSAGE_PACKAGE}.{name}{'Data' if has_suffix else ''}"


def _without_records(fields: dict[str, Any]) -> dict[str, Any]:
    """Drop the fields of type records: Kafka's converters print them only as "" or null."""
    fields.pop("records", None)
    return fields


def as_json(message: msgspec.Struct, version: int) -> dict[str, Any]:
    """Format our message as Kafka's JSON converters do.

    It has all fields of the version except tagged ones with their default. A `records` field is
    left out.
    """
    schema = load_table()[type(message).__name__]

    def struct(value: msgspec.Struct, fields: tuple[Field, ...]) -> dict[str, Any]:
        return {
            field.name[0].lower() + field.name[1:]: array(getattr(value, field.python_name), field)
            for field in fields
            if field.exists(version)
            and field.type != "records"
            and not (field.is_tagged(version) and at_default(value, field))
        }

    def at_default(parent: msgspec.Struct, field: Field) -> bool:
        value = getattr(parent, field.python_name)
        return bool(value == getattr(type(parent)(), field.python_name)) or (
            isinstance(value, msgspec.Struct) and value == type(value)()
        )

    def array(value: Any, field: Field) -> Any:
        if field.is_array and value is not None:
            return [element(each, field) for each in value]
        return element(value, field)

    def element(value: Any, field: Field) -> Any:
        if isinstance(value, msgspec.Struct):
            assert field.struct_name is not None
            return struct(value, schema.structs[field.struct_name])
        if value is not None and field.element_type == "bytes":
            return base64.b64encode(value).decode()
        if value is not None and field.element_type == "uuid":
            return base64.urlsafe_b64encode(value).decode().rstrip("=")
        return value

    return struct(message, schema.fields)

"""Kafka's own message classes, in a JVM beside the test: the oracle for every (message, version) pair of our table.

What Kafka generates from its schemas reads our bytes, says what it understood, and writes the message anew. The jars are those of the
Kafka broker that the other suites run.
"""

import base64
import json
from typing import Any

import msgspec
from logfleet.wire.schema import Field, load_table

from e2e.harness.jvm import Jvm

COORDINATOR_PACKAGE = "org.apache.kafka.coordinator.group.generated"
METADATA_PACKAGE = "org.apache.kafka.common.metadata"
MESSAGE_PACKAGE = "org.apache.kafka.common.message"


class KafkaCodec(Jvm):
    """A JVM with Kafka's message classes, until the block ends."""

    def __init__(self) -> None:
        super().__init__("broker")

    def reencode(self, name: str, version: int, written: bytes) -> tuple[bytes, dict[str, Any]]:
        """What Kafka writes for the message that it read from `written`, and its fields by Kafka's JSON converter.

        Raises AssertionError if Kafka leaves bytes over, py4j's Py4JJavaError if it cannot read them.
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
    """The full name of Kafka's class of one of our messages."""
    kind = load_table()[name].kind
    if kind.startswith("coordinator"):
        return f"{COORDINATOR_PACKAGE}.{name}"
    if kind == "metadata":
        return f"{METADATA_PACKAGE}.{name}"
    has_suffix = kind in {"request", "response"} or kind == "header"
    return f"{MESSAGE_PACKAGE}.{name}{'Data' if has_suffix else ''}"


def _without_records(fields: dict[str, Any]) -> dict[str, Any]:
    """Kafka's converters print nothing of records but "" or null."""
    fields.pop("records", None)
    return fields


def as_json(message: msgspec.Struct, version: int) -> dict[str, Any]:
    """Our message as Kafka's JSON converters print it: every field of that version, but tagged ones at their default.

    A `records` field is left out.
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

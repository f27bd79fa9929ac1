"""Kafka's own message classes, in a JVM beside the test: the oracle for every (message, version) pair of our table.

What Kafka generates from its schemas reads our bytes, says what it understood, and writes the message anew. py4j comes with
PySpark; the jars are those of the Kafka broker that the other suites run.
"""

import base64
import json
import subprocess
from types import TracebackType
from typing import Any, Self

import msgspec
from logfleet.wire.schema import Field, load_table
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path

from e2e.harness.kafka import classpath, java

COORDINATOR_PACKAGE = "org.apache.kafka.coordinator.group.generated"
METADATA_PACKAGE = "org.apache.kafka.common.metadata"
MESSAGE_PACKAGE = "org.apache.kafka.common.message"
FLAGS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class KafkaCodec:
    """A JVM with Kafka's message classes, until the block ends."""

    def __enter__(self) -> Self:
        jars = f"{find_jar_path()}:{classpath('broker')}"
        # --die-on-broken-pipe: the JVM ends with its standard input, however the tests end
        options = ["--die-on-broken-pipe", "--enable-auth", "0"]
        self._process = subprocess.Popen(
            [java(), *FLAGS, "-cp", jars, "py4j.GatewayServer", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        token = self._process.stdout.readline().strip()
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token)
        )
        self._jvm: Any = self._gateway.jvm
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gateway.shutdown()
        self._process.communicate(timeout=20)

    def reencode(self, name: str, version: int, written: bytes) -> tuple[bytes, dict[str, Any]]:
        """What Kafka writes for the message that it read from `written`, and its fields by Kafka's JSON converter.

        Raises AssertionError if Kafka leaves bytes over, py4j's Py4JJavaError if it cannot read them.
        """
        class_name = kafka_class(name)
        protocol = self._jvm.org.apache.kafka.common.protocol
        buffer = self._jvm.java.nio.ByteBuffer.wrap(written)
        message = getattr(self._jvm, class_name)(protocol.ByteBufferAccessor(buffer), version)
        assert buffer.remaining() == 0, f"{name} {version}: Kafka left {buffer.remaining()} bytes"
        again = protocol.MessageUtil.toByteBufferAccessor(message, version).buffer().array()
        converter = getattr(self._jvm, class_name + "JsonConverter")
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

"""Draws one message in two forms: ours, and kio's (the oracle), field by field from our table and kio's dataclass."""

import re
from dataclasses import Field as KioField
from dataclasses import fields as kio_fields
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from kio.index import UnknownEntity, load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import LoadableEntityType
from kio.static.constants import EntityType
from logfleet.wire import messages
from logfleet.wire.schema import Field, Message, load_table

TEXT = st.text(st.characters(codec="utf-8"), max_size=5) | st.just("x" * 130)
BYTES = st.binary(max_size=5) | st.just(b"y" * 200)
INTEGERS = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **INTEGERS,
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": TEXT,
    "bytes": BYTES,
    "records": BYTES,
    "uuid": st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
}
ERROR_CODES = st.sampled_from([int(code) for code in KioErrorCode])
MILLISECONDS = st.integers(-(2**31), 2**31 - 1)
# kio keeps timestamps as whole seconds since 1970 and reads -1 as null
TIMESTAMPS_MS = st.integers(0, 2**32).map(lambda seconds: seconds * 1000)
LENGTHS = st.integers(0, 2) | st.just(40)
KIO_KINDS: dict[str, LoadableEntityType] = {
    "request": EntityType.request,
    "response": EntityType.response,
    "header": EntityType.header,
}


def kio_class(name: str, version: int) -> type | None:
    """kio's class of one of our messages, None if it has none."""
    kind: LoadableEntityType = KIO_KINDS.get(load_table()[name].kind, EntityType.data)
    stem = name
    if kind in {EntityType.request, EntityType.response}:
        stem = re.sub(r"(Request|Response)$", "", name)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()
    try:
        return load_entity_schema(snake, version, kind)
    except UnknownEntity:
        return None


class Drawer:
    """Draws a message of one version; `kio` None draws ours alone.

    full: nothing is null, no array is empty, no tagged struct is left out, so that every field of the version is drawn.
    """

    def __init__(self, data: st.DataObject, name: str, version: int, *, full: bool = False) -> None:
        self.data, self.name, self.version, self.full = data, name, version, full
        self.schema: Message = load_table()[name]
        self.cls: Any = getattr(messages, name)

    def message(self, kio: type | None) -> tuple[msgspec.Struct, Any]:
        return self.struct(self.cls, self.schema.fields, kio)

    def struct(
        self, cls: type[msgspec.Struct], fields: tuple[Field, ...], kio: Any
    ) -> tuple[msgspec.Struct, Any]:
        present = [field for field in fields if field.exists(self.version)]
        theirs: list[KioField[Any] | None] = [None] * len(present)
        if kio is not None:
            theirs = list(kio_fields(kio))
            assert len(theirs) == len(present), (cls, kio)
        ours_values, kio_values = {}, {}
        for field, their in zip(present, theirs, strict=True):
            if their is not None:
                assert same_name(field.python_name, their.name), (cls, field.name, their.name)
            ours, kios = self.field(field, their)
            ours_values[field.python_name] = ours
            if their is not None:
                kio_values[their.name] = kios
        return cls(**ours_values), kio(**kio_values) if kio is not None else None

    def field(self, field: Field, their: "KioField[Any] | None") -> tuple[Any, Any]:
        nullable = field.is_nullable(self.version)
        if nullable and not self.full and self.data.draw(st.booleans()):
            return None, None
        kio_type = nested_class(their) if their is not None and field.struct_name else None
        if field.is_array:
            length = self.data.draw(LENGTHS)
            if field.struct_name is not None:
                length = 1 if self.full else min(length, 2)
            elif self.full:
                length = max(length, 1)
            pairs = [self.element(field, their, kio_type) for _ in range(length)]
            return [ours for ours, _ in pairs], tuple(kios for _, kios in pairs)
        leave_out = field.is_struct and field.ever_tagged and not self.full
        if leave_out and self.data.draw(st.booleans()):
            # not set: ours says None, kio holds the struct's defaults
            assert field.struct_name is not None
            return None, default_struct(kio_type) if kio_type is not None else None
        return self.element(field, their, kio_type)

    def element(
        self, field: Field, their: "KioField[Any] | None", kio_type: type | None
    ) -> tuple[Any, Any]:
        if field.struct_name is not None:
            cls = getattr(self.cls, field.struct_name)
            return self.struct(cls, self.schema.structs[field.struct_name], kio_type)
        kind = their.metadata.get("kafka_type", "") if their is not None else ""
        match kind:
            case "error_code":
                code = self.data.draw(ERROR_CODES)
                return code, KioErrorCode(code)
            case "timedelta_i32" | "timedelta_i64":
                ms = self.data.draw(MILLISECONDS)
                return ms, timedelta(milliseconds=ms)
            case "datetime_i64":
                ms = self.data.draw(TIMESTAMPS_MS)
                return ms, datetime.fromtimestamp(ms / 1000, tz=UTC)
        value = self.data.draw(VALUES[field.element_type])
        if field.element_type == "uuid":
            return value, UUID(bytes=value) if any(value) else None
        return value, value


# What 4.4.0 calls differently than the schemas kio was made of.
RENAMED = {
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
    "generation_id_or_member_epoch": "generation_id",
    "type": "type_",
}


def same_name(ours: str, kios: str) -> bool:
    """kio drops the unit of what it holds as timedelta or datetime."""
    return kios in {ours, ours.removesuffix("_ms"), RENAMED.get(ours)}


def nested_class(field: "KioField[Any]") -> type:
    """The dataclass that a kio field is, or holds in a tuple, or may be besides None."""
    pending: list[Any] = [field.type]
    while pending:
        candidate = pending.pop()
        if is_dataclass(candidate):
            assert isinstance(candidate, type)
            return candidate
        pending.extend(getattr(candidate, "__args__", ()))
    raise AssertionError(f"{field.name} holds no dataclass: {field.type}")


def default_struct(cls: type) -> Any:
    from kio.serial._implicit_defaults import get_tagged_field_default

    return cls(**{field.name: get_tagged_field_default(field) for field in kio_fields(cls)})

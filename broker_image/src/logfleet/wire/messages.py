"""One class per Kafka message, made from the schema table on first use.

    from logfleet.wire.messages import ProduceResponse
    ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="t")])

A class has the fields of all versions of its message, in snake case, each with the schema's
default. Integers are int, strings str, `bytes` bytes, `records` bytes-like or None, uuid 16 bytes,
arrays list; nullable fields may be None. A tagged struct that is not set is None, too. Nested
structs are attributes of the message's class. Type checkers use messages.pyi, which `python -m
logfleet.wire.stubs` writes from the same table.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from logfleet.wire.schema import Field, Message, load_table


def _default(field: Field, classes: dict[str, type[msgspec.Struct]]) -> Any:
    if field.default is not msgspec.UNSET:
        return field.scalar_default()
    if field.is_array:
        return msgspec.field(default_factory=list)
    if field.is_struct:
        if field.ever_tagged:
            return None
        factory: Callable[[], object] = classes[field.element_type]
        return msgspec.field(default_factory=factory)
    return field.scalar_default()


def _make(
    name: str,
    fields: tuple[Field, ...],
    classes: dict[str, type[msgspec.Struct]],
    namespace: dict[str, Any],
) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name,
        [(field.python_name, Any, _default(field, classes)) for field in fields],
        module=__name__,
        namespace=namespace,
        # A message is a tree that lives for one request: the cycle collector would find nothing in
        # it.
        gc=False,
        repr_omit_defaults=True,
    )


def _message_class(name: str, message: Message) -> type[msgspec.Struct]:
    classes: dict[str, type[msgspec.Struct]] = {}

    def add(struct: str) -> None:
        if struct in classes:
            return
        fields = message.structs[struct]
        for field in fields:
            if field.struct_name is not None:
                add(field.struct_name)
        qualified = {"__qualname__": f"{name}.{struct}"}
        classes[struct] = _make(struct, fields, classes, qualified)

    for struct in message.structs:
        add(struct)
    return _make(name, message.fields, classes, dict(classes))


def __getattr__(name: str) -> type[msgspec.Struct]:
    message = load_table().get(name)
    if message is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _message_class(name, message)
    return made


def __dir__() -> list[str]:
    return [*globals(), *load_table()]

"""Writes messages.pyi beside messages.py, which declares the message classes for type checkers.

`make setup` runs `python -m logfleet.wire.stubs`; the file is not committed, as the table is its
source.
"""

from collections.abc import Iterator
from pathlib import Path

from logfleet.wire.schema import Field, Message, load_table

_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    "records": "bytes | memoryview",
}
_NUMBERS = {
    "current_leader_epoch": "LeaderEpoch",
    "last_fetched_epoch": "LeaderEpoch",
    "replica_epoch": "BrokerEpoch",
}
"""Types of integer fields by their name: so what is decoded on hot paths needs no conversion."""


def python_type(field: Field, message: str) -> str:
    """The annotation of a field, optional if any version allows null or if None means "not set"."""
    if field.struct_name is not None:
        element = f"{message}.{field.struct_name}"
    elif field.type == "records" and message.endswith("Response"):
        element = "bytes | memoryview | Sized"
    else:
        element = _TYPES.get(field.element_type) or _NUMBERS.get(field.python_name, "int")
    if field.is_array:
        element = f"list[{element}]"
    optional = (
        field.nullable != "none"
        or field.default is None
        or field.type == "records"
        or (field.is_struct and field.ever_tagged)
    )
    return f"{element} | None" if optional else element


def _class(name: str, fields: tuple[Field, ...], message: str, indent: str) -> Iterator[str]:
    rows = [f"{field.python_name}: {python_type(field, message)}" for field in fields]
    arguments = "".join(f", {row} = ..." for row in rows)
    yield f"{indent}class {name}(msgspec.Struct):"
    yield from (f"{indent}    {row}" for row in rows)
    yield f"{indent}    def __init__(self{', *' if fields else ''}{arguments}) -> None: ..."


def _message(name: str, message: Message) -> Iterator[str]:
    lines = list(_class(name, message.fields, name, ""))
    yield lines[0]
    for struct, fields in message.structs.items():
        yield from _class(struct, fields, name, "    ")
    yield from lines[1:]


def text() -> str:
    """The content of messages.pyi."""
    head = ["# Written by `python -m logfleet.wire.stubs` from the schema table.", "import msgspec"]
    head += [
        f"from logfleet.types import {', '.join(sorted(set(_NUMBERS.values())))}",
        "from logfleet.wire.primitives import Sized",
        "",
    ]
    body = [line for name, message in load_table().items() for line in _message(name, message)]
    return "\n".join([*head, *body]) + "\n"


def main() -> None:
    Path(__file__).with_name("messages.pyi").write_text(text())


if __name__ == "__main__":
    main()

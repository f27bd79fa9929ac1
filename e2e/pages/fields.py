"""Tables of the fields of a JSON schema, as CRDs and charts have them."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

Schema = dict[str, Any]
DEPTH_MAX: Final = 12
"""A schema that goes deeper refers to itself."""


def rows(schema: Schema, path: str = "", depth: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """Path, type, default and description of each field below `schema`, in its order.

    Items of an array are written `name[]`. A field without a description of its own still stands
    there if it has no fields below it.
    """
    assert depth <= DEPTH_MAX, path
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        inner = field
        if "items" in field:
            here, inner = f"{here}[]", field["items"]
        below = inner.get("properties")
        if field.get("description") or not below:
            default = "" if "default" not in field else f"`{_shown(field['default'])}`"
            yield here, _type_of(field), default, field.get("description", "")
        if below:
            yield from rows(inner, here, depth + 1)


def table(schema: Schema, path: str = "") -> str:
    """The rows as a table in Markdown."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {kind} | {default} | {_cell(meaning)} |"
        for name, kind, default, meaning in rows(schema, path)
    ]
    return "\n".join(lines) + "\n"


def _type_of(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if "items" in field:
        return f"list of {field['items'].get('type', 'any')}"
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if isinstance(field.get("additionalProperties"), dict):
        return "map"
    kind = field.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _shown(value: object) -> str:
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")

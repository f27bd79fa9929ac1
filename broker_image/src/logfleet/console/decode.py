"""Keys, values and headers as a page shows them: JSON, text, or bytes in hex."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from logfleet.records.record import Record

HEX_BYTES_MAX: Final = 4096
TEXT_MAX: Final = 1 << 20
MASKED: Final = "•••"


def shown(data: bytes | None, name: str = "", masks: Sequence[str] = ()) -> dict[str, Any]:
    """Form (null, json, text or hex), size and text. name: "key" or "value", as masks begin.

    With masks for it, bytes that are not JSON are not shown: what they hold is unknown.
    """
    if data is None:
        return {"form": "null", "size": 0, "text": ""}
    paths = [mask.split(".")[1:] for mask in masks if mask.split(".")[0] == name]
    form, text = "hex", _hex(data)
    try:
        document = msgspec.json.decode(data)
        for path in paths:
            document = _masked(document, path)
        form, text = "json", msgspec.json.format(msgspec.json.encode(document)).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if paths:
            return {"form": "hidden", "size": len(data), "text": MASKED}
        try:
            decoded = data.decode()
            if all(each.isprintable() or each in "\n\r\t" for each in decoded):
                form, text = "text", decoded
        except UnicodeError:
            pass
    return {"form": form, "size": len(data), "text": text[:TEXT_MAX]}


def row(partition: int, record: Record, masks: Sequence[str] = ()) -> dict[str, Any]:
    """A record for a list, and for its own page."""
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown(record.key, "key", masks),
        "value": shown(record.value, "value", masks),
        "headers": [{"name": name, **shown(value)} for name, value in record.headers],
    }


def _masked(document: Any, path: Sequence[str]) -> Any:
    """A copy with MASKED at the path, in each element of lists on the way."""
    if not path:
        return MASKED
    if isinstance(document, list):
        return [_masked(each, path) for each in document]
    if isinstance(document, dict) and path[0] in document:
        return {**document, path[0]: _masked(document[path[0]], path[1:])}
    return document


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, min(len(data), HEX_BYTES_MAX), 16):
        part = data[start : start + 16]
        plain = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{start:06x}  {part.hex(' '):47}  {plain}")
    return "\n".join(lines)

"""The page of reviewed differences to Apache Kafka: what `e2e/compare/differences.toml` lists."""

import tomllib
from collections.abc import Iterator
from typing import Any, Final

from logfleet.wire.errors import ErrorCode

from e2e.harness.images import ROOT

LISTED: Final = ROOT / "e2e" / "compare" / "differences.toml"
HEAD: Final = """# Responses that differ

Made by `make pages` from `e2e/compare/differences.toml`; do not edit.

The same requests go to Apache Kafka 4.4.0 and to Logfleet, and their responses are compared, field by field
(`make oracle`). Each difference that remains was reviewed and is listed here with its reason. Any other difference fails
the comparison. So does a line of this list that is not needed any more.

| response | field | Kafka | Logfleet | why |
|---|---|---|---|---|
"""

Line = dict[str, Any]


def difference_docs() -> str:
    """The page."""
    listed: list[Line] = tomllib.loads(LISTED.read_text())["difference"]
    return HEAD + "".join(f"| {' | '.join(_cells(each))} |\n" for each in _with_reasons(listed))


def _with_reasons(listed: list[Line]) -> Iterator[Line]:
    """The lines, where "as the line before" is replaced by that reason."""
    before = ""
    for line in listed:
        reason: str = line["reason"]
        if reason.startswith("as the line before"):
            reason = before + reason.removeprefix("as the line before")
        else:
            before = reason
        yield {**line, "reason": reason}


def _cells(line: Line) -> list[str]:
    responses = ", ".join(_several(line["api"])).replace("*", "any")
    if "versions" in line:
        responses += f" (versions {line['versions']})"
    fields = _several(line["field"])
    is_code = fields[0].endswith("error_code")
    return [
        responses,
        ", ".join(f"`{each}`" for each in fields),
        _value(line.get("kafka", ""), is_code=is_code),
        _value(line.get("ours", ""), is_code=is_code),
        line["reason"].replace("|", "\\|").replace("<", "&lt;"),
    ]


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _value(value: object, *, is_code: bool) -> str:
    """An error by its name; an absent field, as the list writes it, in words."""
    if value == "":
        return ""
    if is_code and isinstance(value, int):
        return f"`{ErrorCode(value).name}`"
    return str(value).strip("<>") if isinstance(value, str) else f"`{value}`"

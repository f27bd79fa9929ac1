"""What differs between two answers that were made plain, field by field.

A field's path names rows by what identifies them: `topics[t].partitions[0].error_code`. Rows of one list are compared by
that identity, not by their order, which Kafka leaves to its hash tables.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

ABSENT: Final = "<absent>"
ERROR: Final = "error_code"
IDENTITIES: Final = (
    ("resource_type", "resource_name"),
    ("api_key",),
    ("name",),
    ("topic",),
    ("topic_name",),
    ("topic_id",),
    ("group_id",),
    ("transactional_id",),
    ("partition_index",),
    ("partition",),
    ("partition_id",),
    ("partition_num",),
    ("index",),
    ("member_id",),
    ("producer_id",),
    ("key",),
    ("node_id",),
    ("broker_id",),
    ("entity",),
    ("base_offset",),
    ("offset",),
)
"""Fields by which a row is known; the first set that its struct has and that tells its rows apart."""


class Difference(NamedTuple):
    """A field in which the two differ; ABSENT where one has no such field or row."""

    path: str
    kafka: Any
    ours: Any


def differences(kafka: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    """Every field that is not equal; both as `answers.plain` gives them.

    Where two rows tell different errors that is the one difference: the other fields follow from it.
    """
    if isinstance(kafka, dict) and isinstance(ours, dict):
        if kafka.get(ERROR) != ours.get(ERROR):
            yield Difference(f"{path}.{ERROR}".removeprefix("."), kafka.get(ERROR), ours.get(ERROR))
            return
        for name in {**kafka, **ours}:
            inner = f"{path}.{name}" if path else name
            yield from differences(kafka.get(name, ABSENT), ours.get(name, ABSENT), inner)
    elif isinstance(kafka, list) and isinstance(ours, list):
        yield from _rows(kafka, ours, path)
    elif kafka != ours or type(kafka) is not type(ours):
        yield Difference(path, kafka, ours)


def _rows(kafka: list[Any], ours: list[Any], path: str) -> Iterator[Difference]:
    theirs, own = _keyed(kafka, ours)
    for key in {**theirs, **own}:
        inner = f"{path}[{key}]"
        yield from differences(theirs.get(key, ABSENT), own.get(key, ABSENT), inner)


def _keyed(kafka: list[Any], ours: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both lists by the identities of their rows, or by number if the rows have none."""
    rows = kafka + ours
    for identity in IDENTITIES if rows and all(isinstance(row, dict) for row in rows) else ():
        if all(all(name in row for name in identity) for row in rows):
            keyed = [
                {",".join(str(row[name]) for name in identity): row for row in side}
                for side in (kafka, ours)
            ]
            if len(keyed[0]) == len(kafka) and len(keyed[1]) == len(ours):
                return keyed[0], keyed[1]
    return _numbered(kafka), _numbered(ours)


def _numbered(rows: list[Any]) -> dict[str, Any]:
    return {str(number): row for number, row in enumerate(rows)}

"""A valid request of every API that we advertise, changed in one field: each boundary of the field's type in turn.

In the newest version and in the oldest that has the field. What the hand-written corpora did not think of shows here.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from logfleet.wire.apis import API_BY_NAME, Api
from logfleet.wire.schema import Field, load_table

from e2e.compare import requests as r
from e2e.compare.case import Case, Script
from e2e.compare.corpora.bases import BASES
from e2e.compare.corpora.versions import advertised
from e2e.compare.corpus import Corpus
from e2e.compare.side import Side
from e2e.compare.stage import Stage

BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LONG: Final = "x" * 250
"""One more than a topic's name may have."""
UNKNOWN_ID: Final = b"unknown-unknown-"
NEVER_ANSWERED: Final = {"AddPartitionsToTxn", "WriteTxnMarkers"}
"""What brokers ask: Kafka's never answer a request without rows, or one that names a partition twice."""


class Change(NamedTuple):
    """A field's place within the request (names and row numbers) and what it is set to."""

    path: tuple[str | int, ...]
    value: Any


def corpus(ours: Side) -> Corpus:
    """One case per field and version."""
    made = Corpus("boundaries")
    for key, (_, last) in advertised(ours).items():
        api = next(each for each in API_BY_NAME.values() if each.key == key)
        assert api.name in BASES, f"{api.name} is advertised and has no request to start from"
        for field, versions in fields_of(api, last):
            for version in sorted(versions):
                name = f"{api.name}-v{version}-{field}"
                made.cases.append(Case(name, _case(api, version, field)))
    return made


def fields_of(api: Api, last: int) -> list[tuple[str, set[int]]]:
    """Names of the top-level fields, each with its oldest and newest version."""
    found = []
    for field in load_table()[f"{api.name}Request"].fields:
        versions = [v for v in range(api.served_min, last + 1) if field.exists(v)]
        if versions:
            found.append((field.python_name, {versions[0], versions[-1]}))
    return found


def _case(api: Api, version: int, field: str) -> Script:
    def run(side: Side) -> None:
        stage = Stage(side)
        make = BASES[api.name]
        schema = load_table()[f"{api.name}Request"]
        (top,) = [each for each in schema.fields if each.python_name == field]
        for change in changes(make(stage), top, schema.structs, version):
            if api.name in NEVER_ANSWERED and isinstance(change.value, list):
                continue
            request = make(stage)
            side.ask(changed(request, change), version)
            side.await_changes_after(type(request))

    return run


def changed(request: msgspec.Struct, change: Change) -> msgspec.Struct:
    """The request with that one field changed, in place."""
    *inner, last = change.path
    holder: Any = request
    for step in inner:
        holder = holder[step] if isinstance(step, int) else getattr(holder, step)
    setattr(holder, str(last), change.value)
    return request


def changes(
    holder: msgspec.Struct,
    field: Field,
    structs: dict[str, tuple[Field, ...]],
    version: int,
    path: tuple[str | int, ...] = (),
) -> Iterator[Change]:
    """Every boundary of the field, then those of the fields of its first row."""
    name = field.python_name
    here = (*path, name)
    now = getattr(holder, name)
    for value in values(field, now, version):
        if name == "timeout_ms" and 0 < value < r.TIMEOUT_MS:
            continue  # whether it is enough is a matter of speed
        if name == "duration_filter" and 0 <= value < r.TIMEOUT_MS:
            continue  # so is this
        if name == "broker_id" and value == r.NODE_ID:
            continue  # UnregisterBroker: Kafka forgets itself, and answers nobody any more
        if value != now or type(value) is not type(now):
            yield Change(here, value)
    inner: Any = now[0] if isinstance(now, list) and now else now
    if isinstance(inner, msgspec.Struct) and field.struct_name is not None:
        row = (*here, 0) if field.is_array else here
        for each in structs[field.struct_name]:
            if each.exists(version):
                yield from changes(inner, each, structs, version, row)


def values(field: Field, now: Any, version: int) -> list[Any]:
    """What to set the field to."""
    found: list[Any] = [None] if field.is_nullable(version) else []
    if field.is_array:
        rows = now or []
        return [*found, [], [*copy.deepcopy(rows), *copy.deepcopy(rows)]]
    kind = field.element_type
    if kind in BITS:
        least = -(2 ** (BITS[kind] - 1))
        return [-2, -1, 0, 1, 2, least, -least - 1]
    match kind:
        case "bool":
            return [True, False]
        case "string":
            return [*found, "", LONG, "no name!", "a.b_c"]
        case "uuid":
            return [bytes(16), UNKNOWN_ID]
        case "bytes":
            return [*found, b"", b"\xff" * 5]
        case "records":  # null is never answered by Kafka, which fails on it
            return [b"", b"\0" * 61]
        case "float64":
            return [0.0, -1.0, 1.5]
    return found

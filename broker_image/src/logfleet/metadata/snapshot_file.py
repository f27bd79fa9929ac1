"""Snapshots of the metadata store as files: all keys at one revision, as text, with a checksum.

A snapshot is not a copy of etcd's database: it can be restored into any empty store, of one member
or three, of another version, or embedded. The file is lines of JSON: a head, one line per key
(value in base64), and the SHA-256 of everything before it, which reveals a truncated file. Keys
with a lease are left out: registrations and elections are not data.

A restored store is older than the brokers' logs, so some values are changed as they are restored
(`SnapshotRule.restored` of each kind): numbers that must never be given out twice are raised.
Broker epochs need no change: they are revisions, and another etcd counts its own.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from logfleet.metadata.registry import KINDS, Kinds
from logfleet.metadata.store import Put, Snapshot

FORMAT: Final = 1


class DamagedSnapshot(Exception):
    """The file is not a snapshot, or is damaged. The message gives the reason."""


class SnapshotHead(msgspec.Struct, frozen=True):
    """cluster: its name.

    revision: of the store, for all keys. taken: RFC 3339, UTC. keys: how many.
    """

    format: int
    cluster: str
    revision: int
    taken: str
    keys: int


class _Line(msgspec.Struct, frozen=True):
    k: str
    v: str


class _Foot(msgspec.Struct, frozen=True):
    sha256: str


def encode(cluster: str, snapshot: Snapshot, taken: str, kinds: Kinds = KINDS) -> bytes:
    """The content of the file. Keys of no kind are kept: another version or a tool wrote them."""
    kept = [item for item in snapshot.items if not item.lease and _is_kept(kinds, item.key)]
    head = SnapshotHead(FORMAT, cluster, snapshot.revision, taken, len(kept))
    lines = [_Line(item.key, base64.b64encode(item.value).decode()) for item in kept]
    body = msgspec.json.Encoder().encode_lines([head, *lines])
    foot = _Foot(hashlib.sha256(body).hexdigest())
    return body + msgspec.json.encode(foot) + b"\n"


def _is_kept(kinds: Kinds, key: str) -> bool:
    kind = kinds.of(key)
    return kind is None or kind.snapshot.is_kept


def decode(data: bytes) -> tuple[SnapshotHead, dict[str, bytes]]:
    """Head, and values by key. Raises DamagedSnapshot."""
    body, newline, foot = data.removesuffix(b"\n").rpartition(b"\n")
    try:
        expected = msgspec.json.decode(foot, type=_Foot).sha256
        if hashlib.sha256(body + newline).hexdigest() != expected:
            raise DamagedSnapshot("its content does not match its checksum")
        first, *lines = body.split(b"\n")
        head = msgspec.json.decode(first, type=SnapshotHead)
        found = [msgspec.json.decode(line, type=_Line) for line in lines]
    except msgspec.DecodeError as error:
        raise DamagedSnapshot(f"it does not end as a snapshot does: {error}") from error
    if head.format != FORMAT:
        raise DamagedSnapshot(f"its format is {head.format}, this version reads {FORMAT}")
    return head, {line.k: base64.b64decode(line.v) for line in found}


def restored(items: Mapping[str, bytes], kinds: Kinds = KINDS) -> Iterator[Put]:
    """The writes that restore a snapshot into an empty store.

    The cluster's id comes last: brokers refuse to start without it, so none starts on half a
    restore.
    """
    last = []
    for key, value in sorted(items.items()):
        kind = kinds.of(key)
        if kind is None:
            yield Put(key, value)
        elif kind.snapshot.is_last:
            last.append(Put(key, kind.restored(value)))
        else:
            yield Put(key, kind.restored(value))
    for kind in kinds:
        if kind.snapshot.otherwise is not None and kind.prefix not in items:
            yield kind.put(None, kind.snapshot.otherwise)
    yield from last

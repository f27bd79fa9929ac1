"""Snapshots of the metadata store as files: all keys at one revision, as text, with a checksum.

A snapshot is not a copy of etcd's database: it can be restored into any empty store, of one member
or three, of another version, or embedded. The file is lines of JSON: a head, one line per key
(value in base64), and the SHA-256 of everything before it, which reveals a truncated file. Keys
with a lease are left out: registrations and elections are not data.

A restored store is older than the brokers' logs, so `restored` raises the numbers that must never
be given out twice: leader epochs, by which consumers recognise a newer leader (KIP-320), and
producer ids (KIP-98). All ISRs are empty, and their former members are eligible leaders (KIP-966)
that may have fallen behind since (`PartitionValue.restored`). Broker epochs need no change: they
are revisions, and another etcd counts its own.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from logfleet.metadata import keys
from logfleet.metadata.keys import NO_LEADER, DirectoriesValue, PartitionValue
from logfleet.metadata.store import Put, Snapshot

FORMAT: Final = 1
EPOCHS_UP: Final = 1_000_000
PRODUCER_IDS_UP: Final = 1 << 40
SINCE_THEN: Final = "what-moved-away-since-the-snapshot"
LEFT_OUT: Final = (keys.FENCES, keys.SUSPECTS, keys.BROKERS, keys.CONTROLLER, keys.RECEIPTS)
"""Keys about registrations, which end with their leases, and about the controller's terms."""


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


def encode(cluster: str, snapshot: Snapshot, taken: str) -> bytes:
    """The content of the file."""
    kept = [item for item in snapshot.items if not item.lease and not item.key.startswith(LEFT_OUT)]
    head = SnapshotHead(FORMAT, cluster, snapshot.revision, taken, len(kept))
    lines = [_Line(item.key, base64.b64encode(item.value).decode()) for item in kept]
    body = msgspec.json.Encoder().encode_lines([head, *lines])
    foot = _Foot(hashlib.sha256(body).hexdigest())
    return body + msgspec.json.encode(foot) + b"\n"


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


def restored(items: Mapping[str, bytes]) -> Iterator[Put]:
    """The writes that restore a snapshot into an empty store.

    The cluster's id comes last: brokers refuse to start without it, so none starts on half a
    restore.

    Each broker's record gets a log directory that does not exist (SINCE_THEN). If a replica's log
    moved to another broker after the snapshot, its former broker then reports that it lacks the log
    (`replication.missing_directories`). It must not create an empty one, which might be elected in
    place of the log that holds the acknowledged records.
    """
    for key, value in sorted(items.items()):
        if key == keys.CLUSTER_ID:
            continue
        if key.startswith(keys.PARTITIONS):
            state = msgspec.json.decode(value, type=PartitionValue)
            yield Put(key, keys.encode(_as_after_a_death(state)))
        elif key.startswith(keys.DIRECTORIES):
            recorded = msgspec.json.decode(value, type=DirectoriesValue)
            yield Put(key, keys.encode(DirectoriesValue((*recorded.ids, SINCE_THEN))))
        elif key == keys.NEXT_PRODUCER_ID:
            yield Put(key, str(int(value) + PRODUCER_IDS_UP).encode())
        else:
            yield Put(key, value)
    if keys.NEXT_PRODUCER_ID not in items:
        yield Put(keys.NEXT_PRODUCER_ID, str(PRODUCER_IDS_UP).encode())
    if keys.CLUSTER_ID in items:
        yield Put(keys.CLUSTER_ID, items[keys.CLUSTER_ID])


def _as_after_a_death(state: PartitionValue) -> PartitionValue:
    eligible = {*state.elr, *(broker_id for broker_id, _ in state.isr)}
    return state.changed(
        isr=(),
        elr=tuple(each for each in state.replicas if each in eligible),
        leader=NO_LEADER,
        restored=True,
        leader_epoch=state.leader_epoch + EPOCHS_UP,
        last_leader=state.last_leader if state.leader == NO_LEADER else state.leader,
    )

"""Snapshots of the metadata store as files: all keys at one revision, as text, with a checksum.

Not a copy of etcd's own database: it is restored into any empty store, of one member or three, of another version, or embedded. Lines of JSON: a head, a line per key (value in base64), and at the
end the SHA-256 of all before it, without which a file that was cut off would look whole. What is bound to a lease is left out: registrations and elections are not data.

A restored store is older than the brokers' logs, so `restored` raises what must never be given out again: leader epochs, by which consumers know that a leader is a newer one (KIP-320), and
producer ids (KIP-98). Nobody is in an ISR; who was, is an eligible leader (KIP-966), as if all had died at once, but one that may have fallen behind since (`PartitionValue.restored`). Broker epochs are revisions, which begin anew in another etcd.
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
"""What is about registrations, which end with their leases, and about terms of control."""


class DamagedSnapshot(Exception):
    """The file is none, or not whole. The text says what is wrong."""


class SnapshotHead(msgspec.Struct, frozen=True):
    """cluster: its name. revision: of the store, of all keys alike. taken: RFC 3339, UTC. keys: their number."""

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
    """The file."""
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
        told = msgspec.json.decode(foot, type=_Foot).sha256
        if hashlib.sha256(body + newline).hexdigest() != told:
            raise DamagedSnapshot("its checksum is another one than it says")
        first, *lines = body.split(b"\n")
        head = msgspec.json.decode(first, type=SnapshotHead)
        found = [msgspec.json.decode(line, type=_Line) for line in lines]
    except msgspec.DecodeError as error:
        raise DamagedSnapshot(f"it does not end as a snapshot does: {error}") from error
    if head.format != FORMAT:
        raise DamagedSnapshot(f"its format is {head.format}, this version reads {FORMAT}")
    return head, {line.k: base64.b64decode(line.v) for line in found}


def restored(items: Mapping[str, bytes]) -> Iterator[Put]:
    """What is to be written into an empty store, the cluster's id last: without it brokers refuse to start, so that none begins with a half.

    Of each broker a directory is on record that is not there (SINCE_THEN). Where a broker had a replica whose log has moved away since, it so says that it lacks it
    (`control.log_directories`), and begins none that might be elected instead of what was acknowledged.
    """
    for key, value in sorted(items.items()):
        if key == keys.CLUSTER_ID:
            continue
        if key.startswith(keys.PARTITIONS):
            state = msgspec.json.decode(value, type=PartitionValue)
            yield Put(key, keys.encode(_as_after_a_death(state)))
        elif key.startswith(keys.DIRECTORIES):
            known = msgspec.json.decode(value, type=DirectoriesValue)
            yield Put(key, keys.encode(DirectoriesValue((*known.ids, SINCE_THEN))))
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

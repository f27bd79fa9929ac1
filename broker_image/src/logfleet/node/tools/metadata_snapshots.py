"""Takes snapshots of the metadata store into a directory, and restores one into an empty store."""

import os
import re
import time
from pathlib import Path
from typing import Final

from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.snapshot_file import SnapshotHead, decode, encode, restored
from logfleet.metadata.store import MetadataStore, Txn, absent

NAME_END: Final = re.compile(r"\d{8}T\d{6}Z-r\d+\.snapshot")
PUTS_PER_WRITE: Final = 50
"""Keys per store write: far below etcd's limit."""


class EmptyStore(Exception):
    """The store holds no cluster: etcd may have lost its data. The text says so."""


class NotEmpty(Exception):
    """The store holds a cluster already. The text says so, and what to do."""


async def take(store: MetadataStore, cluster: str, directory: Path, keep: int) -> Path:
    """Write a snapshot, whole and durable; then keep only the newest `keep` of this cluster.

    Raises StoreError, OSError, DamagedSnapshot; EmptyStore, as an empty snapshot must not replace
    others. It is written under another name and read back before it gets its own: an interruption
    leaves no broken snapshot, and removes none.
    """
    snapshot = await store.range("")
    if not any(item.key == CLUSTER_ID.prefix for item in snapshot.items):
        raise EmptyStore("the store holds no cluster: no snapshot is taken of what is empty")
    now = time.gmtime()
    taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", now)
    name = f"{_prefix(cluster)}{time.strftime('%Y%m%dT%H%M%SZ', now)}-r{snapshot.revision}.snapshot"
    path, unfinished = directory / name, directory / f".unfinished-{cluster}"
    with unfinished.open("wb") as file:
        file.write(encode(cluster, snapshot, taken))
        file.flush()
        os.fsync(file.fileno())
    decode(unfinished.read_bytes())
    unfinished.rename(path)
    _flush_directory(directory)
    for old in sorted(snapshots(directory, cluster))[:-keep]:
        old.unlink()
    return path


def snapshots(directory: Path, cluster: str) -> list[Path]:
    """The snapshots of this cluster: others may have theirs in the same directory."""
    prefix = _prefix(cluster)
    return [
        path
        for path in directory.iterdir()
        if path.name.startswith(prefix) and NAME_END.fullmatch(path.name.removeprefix(prefix))
    ]


def _prefix(cluster: str) -> str:
    return f"metadata-{cluster}-"


def read(path: Path) -> tuple[SnapshotHead, dict[str, bytes]]:
    """Read a snapshot file. Raises OSError, DamagedSnapshot."""
    return decode(path.read_bytes())


async def restore(store: MetadataStore, items: dict[str, bytes]) -> int:
    """Write the snapshot's keys; return how many. Raises NotEmpty, StoreError.

    After an interruption the next call writes all again: without the cluster's id, which comes
    last, no broker uses the store.
    """
    if await store.get(CLUSTER_ID.prefix) is not None:
        raise NotEmpty(
            "the store holds a cluster already: a snapshot is restored into an empty one"
        )
    puts = list(restored(items))
    is_empty = absent(CLUSTER_ID.prefix)
    for first in range(0, len(puts), PUTS_PER_WRITE):
        result = await store.txn(Txn((is_empty,), tuple(puts[first : first + PUTS_PER_WRITE])))
        if not result.succeeded:
            raise NotEmpty("another process wrote a cluster into the store meanwhile")
    return len(puts)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

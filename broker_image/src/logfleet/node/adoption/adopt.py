"""`logfleet adopt`: turns the directories of a stopped Kafka into those of a broker.

It reads them, decides, and writes the metadata store that a broker starts from.
"""

import uuid
from collections.abc import Sequence
from typing import Final

import msgspec

from logfleet.config.broker import BrokerConfig
from logfleet.io import descriptors
from logfleet.io.clock import now_ms
from logfleet.io.files import Files
from logfleet.log.config import LogConfig
from logfleet.log.directories.log_dir import LogDir
from logfleet.log.segments.open_files import OpenFiles
from logfleet.metadata.kinds.cluster import CLUSTER_ID, RECEIPT
from logfleet.metadata.kinds.topics import TOPIC_ID
from logfleet.metadata.receipts import Receipt
from logfleet.metadata.store import MetadataStore
from logfleet.node.adoption.kafka_directories import (
    AdoptionRefused,
    format_problems,
    locked,
    read_directory,
    read_kraft,
)
from logfleet.node.adoption.writes import Adoption, FoundDirectory, adoption_txns, plan_adoption
from logfleet.store.claims import settle, settle_or_recognise
from logfleet.store.opening import embedded_file, open_store
from logfleet.wire import uuids


class Adopted(msgspec.Struct, frozen=True):
    """The result of `adopt`. was_there: the store had the cluster already, nothing was done.

    written: the store was written.
    """

    adoption: Adoption
    was_there: bool
    written: bool


async def adopt(
    files: Files, config: BrokerConfig, metadata_paths: Sequence[str], *, execute: bool
) -> Adopted:
    """Decide and, if there is no problem and `execute` is set, write the metadata store.

    If Kafka was killed, its logs are recovered first. metadata_paths: other places of Kafka's
    metadata log. Without `execute` nothing is written, and no embedded store is made. Raises
    AdoptionRefused, StoreError, OSError.
    """
    with locked(files, config.log_dirs):
        directories = [read_directory(files, path) for path in config.log_dirs]
        kraft = read_kraft(files, metadata_paths or config.log_dirs)
        adoption = plan_adoption(directories, kraft)
        if adoption.node_id != config.node_id:
            raise AdoptionRefused(
                f"node.id={config.node_id}, but the directories are of node {adoption.node_id}: "
                f"set node.id={adoption.node_id}"
            )
        path = embedded_file(config)
        if path is None or path.exists():
            store = await open_store(config)
            try:
                if await _is_there(store, adoption, directories):
                    return Adopted(adoption, was_there=True, written=False)
            finally:
                await store.close()
        problems = (*adoption.problems, *format_problems(files, directories))
        adoption = msgspec.structs.replace(adoption, problems=problems)
        if problems or not execute:
            return Adopted(adoption, was_there=False, written=False)
        notes = (*adoption.notes, *_recover(files, directories))
        adoption = msgspec.structs.replace(adoption, notes=notes)
        store = await open_store(config)
        try:
            await _write(store, adoption)
        finally:
            await store.close()
    return Adopted(adoption, was_there=False, written=True)


def _recover(files: Files, directories: Sequence[FoundDirectory]) -> list[str]:
    """Do what Kafka's next start would do after a crash; return what a person should learn of it.

    Gaps in logs are treated by Kafka's rule. Each directory is closed in order afterwards: so a
    start of either broker has nothing left to recover, and a later crash of ours is treated by our
    own rule, from recovery points at the logs' ends. The caller holds the locks.
    """
    notes = []
    for found in directories:
        if found.was_clean:
            continue
        log_dir = LogDir(
            OpenFiles(files, descriptors.own().open_files),
            found.path,
            found.cluster_id,
            found.node_id,
            is_locked=True,
        )
        # only the sparseness of rebuilt indexes depends on the configuration here
        for log in log_dir.load(lambda _: LogConfig(), now_ms(), by_kafka=True):
            notes += [f"{log.directory}: {note}" for note in log.notes]
        notes += log_dir.notes
        log_dir.close({})
    return notes


async def _is_there(
    store: MetadataStore, adoption: Adoption, directories: Sequence[FoundDirectory]
) -> bool:
    """Whether the directories were adopted before.

    Raises AdoptionRefused if the store is of another cluster, or Kafka has run since.
    """
    held = await store.get(CLUSTER_ID.prefix)
    if held is None:
        return False
    cluster_id = held.value.decode()
    if cluster_id != adoption.cluster_id:
        raise AdoptionRefused(
            f"the metadata store is of cluster {cluster_id}, the directories of "
            f"{adoption.cluster_id}: name an empty store (another logfleet.cluster.name, or a "
            "first log directory without a logfleet-metadata.db)"
        )
    existing = {item.key for item in (await store.range(TOPIC_ID.prefix)).items}
    held_ids = {log.topic_id for directory in directories for log in directory.logs}
    for topic in adoption.topics:  # a topic without directories was deleted since
        if topic.id in held_ids and TOPIC_ID.key(uuids.from_text(topic.id)) not in existing:
            raise AdoptionRefused(
                f"the directories were adopted before, and Kafka has created topic {topic.name} "
                "since: remove what was adopted then (logfleet-metadata.db in the first log "
                "directory) and adopt again"
            )
    return True


async def _write(store: MetadataStore, adoption: Adoption) -> None:
    """Write the store. Raises AdoptionRefused if it has a cluster by now, even with this id."""
    *before, last = adoption_txns(adoption)
    key = RECEIPT.key((adoption.node_id, 0))
    held = await store.get(key)
    receipt = Receipt(key, 0 if held is None else held.mod_revision)
    receipt.begin(uuid.uuid4().hex.encode())
    for txn in before:  # these may be applied twice
        if not (await settle(store, txn)).succeeded:
            raise AdoptionRefused(_IN_USE)
    settled = await settle_or_recognise(store, receipt.on(last))
    if not receipt.settled(settled.result, unanswered=settled.unanswered):
        raise AdoptionRefused(_IN_USE)


_IN_USE: Final = "a cluster has begun to use this metadata store meanwhile: name another one"

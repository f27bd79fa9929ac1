"""Checks that the data in a broker's log directories is its own, before anything is written.

Each of identity (meta.properties), logs and metadata store may be there, missing, or another's;
docs/how-to/log-directories.md lists what follows. Data without an identity never gets a new one:
the store has the ids of this broker's directories on record, and would miss its logs for ever.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from logfleet.config.broker import BrokerConfig
from logfleet.log.directories.log_dir import Identity
from logfleet.log.directories.log_dirs import OnDisk
from logfleet.log.names import META_PROPERTIES
from logfleet.metadata.kinds.brokers import DIRECTORIES, DirectoriesValue
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.store import MetadataStore
from logfleet.node.cluster.joining import retry_while_unavailable
from logfleet.node.cluster.registration.errors import DataWithoutIdentity, WrongCluster
from logfleet.store.opening import embedded_file

NAMED_MAX: Final = 3
"""Partitions that a message names."""


def refuse_data_without_store(config: BrokerConfig, on_disk: OnDisk) -> None:
    """Raise RegistrationError if there is data and its embedded store is missing.

    A new store is not made then.
    """
    path = embedded_file(config)
    if path is None or config.log_dirs[0] in on_disk.unreadable or path.exists():
        return  # an unreadable store raises its own error when it is opened
    if on_disk.cluster_id is None and not on_disk.nameless:
        return
    for other in config.log_dirs[1:]:
        if other not in on_disk.unreadable and (Path(other) / path.name).exists():
            raise WrongCluster(
                f"{path} is not there, and {other}/{path.name} is: the metadata store lies in the "
                f"first of log.dirs, so name {other} first, as before. Nothing was changed"
            )
    if on_disk.cluster_id is not None:
        raise WrongCluster(f"{data_without_store(on_disk.cluster_id, path)}. Nothing was changed")
    raise DataWithoutIdentity(
        f"{data_without_identity(on_disk.nameless)}, and {path} is not there either: bring both "
        "back from a copy of the directory, or name an empty directory. Nothing was changed"
    )


def data_without_store(cluster_id: str, path: Path) -> str:
    return (
        f"the data is of cluster {cluster_id} and {path} is not there: what Apache Kafka wrote is "
        "taken over by `logfleet adopt`; else bring the file back from a copy of the directory, or "
        "by `logfleet metadata restore`"
    )


def data_without_identity(nameless: Mapping[str, tuple[str, ...]]) -> str:
    """Names directories with logs but without meta.properties. nameless: their partitions."""
    return " and ".join(
        f"{path} holds {len(logs)} partition{'s' * (len(logs) > 1)} "
        f"({', '.join(logs[:NAMED_MAX])}{', ...' * (len(logs) > NAMED_MAX)}) "
        f"but no {META_PROPERTIES}, which says whose they are"
        for path, logs in nameless.items()
    )


async def refuse_data_without_identity(store: MetadataStore, node_id: int, on_disk: OnDisk) -> None:
    """Raise DataWithoutIdentity if a directory holds data without an identity.

    The message has what the store has recorded of this broker's directories. Waits as long as the
    store is away.
    """
    if not on_disk.nameless:
        return
    cluster = await retry_while_unavailable(lambda: store.get(CLUSTER_ID.prefix))
    held = await retry_while_unavailable(lambda: store.get(DIRECTORIES.key(node_id)))
    recorded = () if held is None else msgspec.json.decode(held.value, type=DirectoriesValue).ids
    cluster_id = None if cluster is None else cluster.value.decode()
    advice = missing_identity_advice(
        on_disk, node_id, cluster_id, sorted({*recorded} - on_disk.directory_ids)
    )
    raise DataWithoutIdentity(
        f"{data_without_identity(on_disk.nameless)}; nothing was changed. {advice}"
    )


def missing_identity_advice(
    on_disk: OnDisk, node_id: int, cluster_id: str | None, missing: list[str]
) -> str:
    """The advice for directories with logs but without meta.properties.

    missing: ids of directories that are recorded for this broker, and are not there.
    """
    if cluster_id is None or not missing:
        cluster = "knows no cluster" if cluster_id is None else f"is of cluster {cluster_id}"
        return (
            f"The metadata store {cluster} and misses no directory of broker {node_id}: bring "
            f"{META_PROPERTIES} back from a copy of the directory, or name an empty directory in "
            "log.dirs"
        )
    if len(missing) != len(on_disk.nameless):
        return (
            f"The metadata store misses the directories {', '.join(missing)} of broker {node_id} "
            f"of cluster {cluster_id}: bring {META_PROPERTIES} back from a copy, or write it with "
            "cluster.id, node.id and the right directory.id"
        )
    commands = " && ".join(
        command(path, Identity(cluster_id, node_id, directory_id))
        for path, directory_id in zip(on_disk.nameless, missing, strict=True)
    )
    return (
        f"If they are of broker {node_id} of cluster {cluster_id}, of which the metadata store "
        f"misses the director{'y' if len(missing) == 1 else 'ies'} {', '.join(missing)}, "
        f"write it back: {commands}"
    )


def command(path: str, identity: Identity) -> str:
    """A shell command that writes the file; without a backslash, to be the same in a JSON log."""
    lines = "; ".join(f"echo {key}={value}" for key, value in identity.as_properties().items())
    return f"({lines}) > {shlex.quote(f'{path}/{META_PROPERTIES}')}"

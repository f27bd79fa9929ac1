"""The cluster that this broker belongs to: its id, made by the first broker of a new cluster."""

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import structlog

from logfleet import __version__
from logfleet.controller.brokers.feature_level import LEVEL_MIN, cannot_join
from logfleet.metadata.kinds.cluster import CLUSTER_ID, FEATURES, FeaturesValue
from logfleet.metadata.store import MetadataStore, StoreUnavailable
from logfleet.node.cluster.registration.errors import LevelTooHigh, NoCluster, WrongCluster
from logfleet.node.cluster.registration.writes import features_of
from logfleet.store.claims import create_once

T = TypeVar("T")
log = structlog.get_logger(__name__)

UNAVAILABLE_PAUSE_S: Final = 0.2
"""Short: a store that is unavailable has already tried for seconds."""


def new_cluster_id() -> str:
    """16 random bytes in Kafka's text form, not beginning with a dash (Kafka: Uuid.randomUuid)."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()).startswith("-"):
        pass
    return text


async def join_cluster(
    store: MetadataStore,
    on_disk: str | None,
    *,
    unreadable: Mapping[str, OSError] | None = None,
    level: int = LEVEL_MIN,
) -> str:
    """The cluster's id; the first broker of a new cluster makes it. Nothing is written to disk.

    on_disk: cluster.id of this broker's meta.properties, None if it holds no data. unreadable: log
    directories that may hold data, with their errors. level: the highest feature level that this
    broker supports; a new cluster starts with it, as there is no older version to return to. Raises
    LevelTooHigh. Raises WrongCluster if this broker holds data of another cluster, or the store has
    lost its own: a store that was wiped or mistaken must not make brokers drop their logs. Raises
    NoCluster if an unreadable directory may hold data of an older cluster. Waits as long as the
    store is away.
    """
    if on_disk is None and not unreadable:
        features = FEATURES.put(None, FeaturesValue(level, __version__))
        made = await create_once(store, CLUSTER_ID.prefix, new_cluster_id().encode(), features)
        cluster_id = made.decode()
    else:
        cluster_id = await _existing_cluster(store, on_disk, unreadable or {})
    await _check_level(store, level)
    return cluster_id


async def _existing_cluster(
    store: MetadataStore, on_disk: str | None, unreadable: Mapping[str, OSError]
) -> str:
    held = await retry_while_unavailable(lambda: store.get(CLUSTER_ID.prefix))
    if on_disk is None:
        if held is None:
            reasons = ", ".join(f"{path}: {error}" for path, error in unreadable.items())
            raise NoCluster(
                "no new cluster is created while a log directory cannot be read, as it may belong "
                f"to one ({reasons})"
            )
        return held.value.decode()
    if held is None:
        raise WrongCluster(
            f"the data here belongs to cluster {on_disk}, but the metadata store knows no cluster: "
            "what Apache Kafka wrote is taken over by `logfleet adopt`; else the store was wiped, "
            "or the configuration names another one"
        )
    if held.value.decode() != on_disk:
        raise WrongCluster(
            f"the data here belongs to cluster {on_disk}, the metadata store to "
            f"{held.value.decode()}: configure the log.dirs and the store that belong together; "
            "meta.properties is right, leave it as it is"
        )
    return on_disk


async def _check_level(store: MetadataStore, level: int) -> None:
    """Raise LevelTooHigh if this broker does not support the cluster's feature level."""
    features = features_of(await retry_while_unavailable(lambda: store.get(FEATURES.prefix)))
    reason = cannot_join(features, level)
    if reason:
        raise LevelTooHigh(reason)


async def retry_while_unavailable(call: Callable[[], Awaitable[T]]) -> T:
    """Call until the store is available; return the result."""
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            log.warning("metadata_store_unavailable", reason=str(error))
        await asyncio.sleep(UNAVAILABLE_PAUSE_S)

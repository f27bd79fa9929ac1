"""Opens the metadata store that a broker's configuration names."""

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from logfleet import NO_ASSERTIONS
from logfleet.config.broker import BrokerConfig
from logfleet.io.dead_mans_timer import NO_TIMER, DeadMansTimer
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata.store import MetadataStore, StoreRefused

EMBEDDED_FILE: Final = "logfleet-metadata.db"
"""File name of the embedded store, in the first log directory: data and its metadata move together.
"""

NO_ETCD_CLIENT: Final = (
    "a metadata store in etcd needs libraries that are not installed: pip install 'logfleet[etcd]'"
)

OpenStore = Callable[[BrokerConfig, DeadMansTimer], Awaitable[MetadataStore]]
"""Opens a metadata store, as `open_store`."""


def etcd_client_installed() -> bool:
    """Whether the libraries are there that a store in etcd needs."""
    return find_spec("grpc") is not None


def embedded_file(config: BrokerConfig) -> Path | None:
    """The path of the embedded store; None if the metadata is elsewhere."""
    if config.logfleet_metadata_store == "sqlite":
        return Path(config.log_dirs[0]) / EMBEDDED_FILE
    return None


async def open_store(config: BrokerConfig, timer: DeadMansTimer = NO_TIMER) -> MetadataStore:
    """The store, on the running loop. No request is sent to etcd yet.

    timer: set while leases of etcd are held (see `io.etcd.lease`); the embedded store needs none.

    Raises StoreLocked (another process has the embedded store open) and StoreRefused (not a store;
    endpoints or TLS files that cannot be used; the libraries for etcd are not installed; Python
    runs without assertions).
    """
    if NO_ASSERTIONS:
        raise StoreRefused(NO_ASSERTIONS)  # here, as every broker passes here at its start
    path = embedded_file(config)
    if path is not None:
        return await SqliteStore.open(path)
    # costs 0.3 s and 25 MB, which a broker with an embedded store saves
    try:
        from logfleet.io.etcd.endpoints import Addresses, TlsFiles
        from logfleet.io.etcd.store import EtcdStore
    except ModuleNotFoundError as error:
        raise StoreRefused(NO_ETCD_CLIENT) from error

    tls = None
    if config.logfleet_etcd_ca_location is not None:
        certificate, key = config.logfleet_etcd_cert_location, config.logfleet_etcd_key_location
        tls = TlsFiles(
            Path(config.logfleet_etcd_ca_location),
            Path(certificate) if certificate is not None else None,
            Path(key) if key is not None else None,
        )
    try:
        addresses = Addresses.parse(config.logfleet_etcd_endpoints, tls)
    except ValueError as error:
        raise StoreRefused(f"logfleet.etcd.endpoints: {error}") from error
    return EtcdStore(addresses, f"/logfleet/{config.logfleet_cluster_name}/", timer)

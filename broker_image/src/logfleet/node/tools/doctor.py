"""`logfleet doctor`: checks what a broker of this configuration needs of its machine.

The broker may be running or not. Each check gives findings: a sentence that says what is, and what
to do if that is not good. Functions named `judge_...` judge measurements and measure nothing
themselves. Nothing is left behind: missing directories are not made.
"""

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import msgspec

from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.config.broker import ADMIN_LISTENER, BrokerConfig
from logfleet.config.server_properties.names import sentences
from logfleet.io.descriptors import (
    LIMIT_WANTED,
    NO_LIMIT,
    PER_CONNECTION,
    shares_of,
)
from logfleet.io.files import Files
from logfleet.log.directories.log_dir import LogDirRefused
from logfleet.log.directories.log_dirs import one_identity, refuse_listed_twice
from logfleet.metadata.kinds.brokers import Endpoint
from logfleet.metadata.kinds.cluster import CLUSTER_ID
from logfleet.metadata.store import StoreError, StoreLocked
from logfleet.net.sockets import bind_tcp
from logfleet.node.cluster.own_data import data_without_store
from logfleet.node.tools.directory_check import DirectoryCheck, cannot_be_entered
from logfleet.node.tools.finding import Finding, Level
from logfleet.store.opening import embedded_file, open_store

CONNECTIONS_WANTED: Final = 1000
"""If the limit of descriptors allows fewer clients, doctor warns."""
CLOCK_STEP_MS_MAX: Final = 100
ANSWER_MS_MAX: Final = 5000
EARLIEST_S: Final = 1_704_067_200
"""2024: no machine that runs this can be earlier."""


class ProbeAnswer(msgspec.Struct, frozen=True):
    """The broker at an address: its cluster, and whether it has the expected id."""

    cluster_id: str
    is_expected: bool


async def examine(config: BrokerConfig, files: Files) -> AsyncIterator[Finding]:
    """All findings, ordered so that the first failure may explain the next ones."""
    clock = Clock()
    for finding in judge_keys(config):
        yield finding
    cluster_ids: dict[str, str] = {}
    directory_ids: dict[str, str] = {}
    is_running = False
    try:
        refuse_listed_twice(config.log_dirs)
    except LogDirRefused as error:
        yield Finding("log directory", Level.FAILED, str(error))
    for path in config.log_dirs:
        found = DirectoryCheck(files, path, config)
        for finding in found.findings():
            yield finding
        is_running |= found.is_locked
        if found.cluster_id is not None:
            cluster_ids[path] = found.cluster_id
        if found.directory_id is not None:
            directory_ids[path] = found.directory_id
    for finding in judge_copies(directory_ids):
        yield finding
    yield judge_identities(cluster_ids)
    cluster_id = next(iter(cluster_ids.values()), None)
    yield await check_store(config, cluster_id, is_running=is_running)
    for listener in config.listeners:
        yield await check_port(listener, config.node_id, cluster_id)
    if config.logfleet_admin_listener is not None:
        yield check_admin_port(
            config.logfleet_admin_listener,
            is_running=is_running,
            is_default=ADMIN_LISTENER not in config.static,
        )
    for listener in config.advertised_listeners:
        yield await check_address(listener, config.node_id, cluster_id, is_running=is_running)
    yield judge_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield clock.judged()


def judge_keys(config: BrokerConfig) -> Iterator[Finding]:
    """Report unknown keys, and keys without effect."""
    for sentence in sentences(config.unknown):
        yield Finding("configuration", Level.WARNING, sentence)
    if config.without_effect:
        names = ", ".join(config.without_effect)
        yield Finding(
            "configuration",
            Level.WARNING,
            f"{names}: known and kept, without effect in this version; see "
            "docs/reference/configs.md, or take it out",
        )
    if not config.unknown and not config.without_effect:
        yield Finding(
            "configuration", Level.OK, f"all {len(config.static)} keys that are set have an effect"
        )


def judge_copies(directory_ids: dict[str, str]) -> Iterator[Finding]:
    """Report copies of one directory. directory_ids: by directory; listed twice is no copy."""
    by_id: dict[str, str] = {}
    for path, directory_id in directory_ids.items():
        first = by_id.setdefault(directory_id, path)
        if not Path(first).samefile(path):
            yield Finding("identity", Level.FAILED, one_identity(first, path, directory_id))


def judge_identities(cluster_ids: dict[str, str]) -> Finding:
    """Whether all directories belong to one cluster. cluster_ids: by directory, if it has data."""
    if len(set(cluster_ids.values())) > 1:
        listed = ", ".join(f"{path} of {cluster}" for path, cluster in cluster_ids.items())
        return Finding(
            "identity",
            Level.FAILED,
            f"log.dirs belong to several clusters ({listed}): name those of one",
        )
    return Finding(
        "identity", Level.OK, f"{len(cluster_ids)} of log.dirs hold data, of one cluster"
    )


async def check_store(config: BrokerConfig, cluster_id: str | None, *, is_running: bool) -> Finding:
    """Whether the metadata store is usable, and belongs to the directories' cluster."""
    path = embedded_file(config)
    where = str(path) if path else f"etcd at {','.join(config.logfleet_etcd_endpoints)}"
    try:
        is_missing = path is not None and not path.exists()
    except OSError as error:
        assert path is not None, "its path was checked"
        return cannot_be_entered("metadata", path, error)
    if path is not None and is_missing:
        if cluster_id is None:
            return Finding("metadata", Level.OK, f"{where} will be made at the first start")
        return Finding(
            "metadata",
            Level.FAILED,
            data_without_store(cluster_id, path),
        )
    try:
        async with asyncio.timeout(ANSWER_MS_MAX / 1000):
            store = await open_store(config)
            try:
                held = await store.get(CLUSTER_ID.prefix)
            finally:
                await store.close()
    except StoreLocked:
        level = Level.OK if is_running else Level.FAILED
        return Finding(
            "metadata",
            level,
            f"{where} is in use by another process" + ("" if is_running else ": end that"),
        )
    except (StoreError, TimeoutError) as error:
        reason = str(error) or f"no answer in {ANSWER_MS_MAX} ms"
        return Finding(
            "metadata",
            Level.FAILED,
            f"{where} cannot be used: {reason}; start it, or correct its address",
        )
    return judge_store(where, held.value.decode() if held else None, cluster_id)


def judge_store(where: str, held: str | None, cluster_id: str | None) -> Finding:
    """Whether store and data are of one cluster.

    held: the store's; cluster_id: the directories'.
    """
    if cluster_id is not None and held != cluster_id:
        return Finding(
            "metadata",
            Level.FAILED,
            f"{where} knows {'no cluster' if held is None else f'cluster {held}'}, the data is of "
            f"cluster {cluster_id}: name its own store, or `logfleet adopt` what a Kafka left",
        )
    return Finding(
        "metadata",
        Level.OK,
        f"{where} answers, " + (f"of cluster {held}" if held else "and is empty"),
    )


async def check_port(listener: Endpoint, node_id: int, cluster_id: str | None) -> Finding:
    """Whether the port is free, or this very broker listens on it."""
    address = f"{listener.host}:{listener.port}"
    try:
        for bound in bind_tcp(listener.host, listener.port):
            bound.close()
    except OSError as error:
        with contextlib.suppress(ClientError, OSError, TimeoutError):
            answer = await probe(listener.host or "localhost", listener.port, node_id)
            if is_this_broker(answer, cluster_id):
                return Finding("port", Level.OK, f"this broker answers at {address}")
            return Finding(
                "port",
                Level.FAILED,
                f"another broker, of cluster {answer.cluster_id}, answers at {address}: stop it, "
                "or change listeners",
            )
        return Finding(
            "port",
            Level.FAILED,
            f"listener {listener.name} cannot listen on {address} ({error.strerror}): end what "
            "does, or change listeners",
        )
    return Finding("port", Level.OK, f"{address} is free")


def check_admin_port(listener: Endpoint, *, is_running: bool, is_default: bool) -> Finding:
    """Whether the admin port is free. is_running: a broker of this configuration has it.

    is_default: the broker may take a free one.
    """
    address = f"{listener.host}:{listener.port}"
    try:
        for bound in bind_tcp(listener.host, listener.port):
            bound.close()
    except OSError as error:
        if is_running:
            return Finding("admin port", Level.OK, f"{address} is in use, and this broker runs")
        if is_default:
            taken = f"{address} is in use: the broker takes a free one"
            return Finding("admin port", Level.OK, taken)
        return Finding(
            "admin port",
            Level.FAILED,
            f"logfleet.admin.listener cannot listen on {address} ({error.strerror}): end what "
            "does, or change logfleet.admin.listener",
        )
    return Finding("admin port", Level.OK, f"{address} is free")


async def check_address(
    listener: Endpoint, node_id: int, cluster_id: str | None, *, is_running: bool
) -> Finding:
    """Whether the advertised address leads to this broker."""
    host = listener.host or socket.gethostname()
    address = f"{host}:{listener.port}"
    advice = "set advertised.listeners to what clients can reach"
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Finding(
            "advertised address",
            Level.FAILED,
            f"{host} has no address ({error.strerror}): {advice}",
        )
    resolved = ", ".join(sorted({str(info[4][0]) for info in infos}))
    if not is_running or not listener.port:
        return Finding(
            "advertised address",
            Level.OK,
            f"{host} is {resolved}; it is probed only while the broker runs",
        )
    try:
        answer = await probe(host, listener.port, node_id)
    except (ClientError, OSError, TimeoutError) as error:
        reason = str(error) or "no answer"
        return Finding(
            "advertised address",
            Level.FAILED,
            f"{address} ({resolved}) cannot be reached from here ({reason}): {advice}",
        )
    return judge_answer(address, answer, node_id, cluster_id)


def judge_answer(
    address: str, answer: ProbeAnswer, node_id: int, cluster_id: str | None
) -> Finding:
    """Whether this broker answers at its advertised address. answer: of the broker found there."""
    if is_this_broker(answer, cluster_id):
        return Finding(
            "advertised address",
            Level.OK,
            f"{address} is broker {node_id} of cluster {answer.cluster_id}",
        )
    return Finding(
        "advertised address",
        Level.FAILED,
        f"at {address} answers another broker, of cluster {answer.cluster_id}: "
        "set advertised.listeners to this broker's own address",
    )


def is_this_broker(answer: ProbeAnswer, cluster_id: str | None) -> bool:
    return answer.is_expected and cluster_id in {None, answer.cluster_id}


async def probe(host: str, port: int, node_id: int) -> ProbeAnswer:
    """Return the broker that answers at an address. Raises ClientError, OSError, TimeoutError.

    node_id: the expected one.
    """
    name = f"[{host}]" if ":" in host else host
    async with (
        asyncio.timeout(ANSWER_MS_MAX / 1000),
        Client(f"{name}:{port}", client_id="logfleet-doctor", timeout_ms=ANSWER_MS_MAX) as client,
    ):
        admin = Admin(client)
        found = await admin.describe_cluster()
        return ProbeAnswer(found.cluster_id, await admin.is_broker(node_id))


def judge_descriptors(hard: int) -> Finding:
    """Judge the limit of open files. hard: up to which a broker raises its own, -1 for none."""
    shares = shares_of(hard)
    if shares.connections == NO_LIMIT:
        return Finding("file descriptors", Level.OK, "there is no limit of open files")
    limits = (
        f"the limit of open files is {hard}: {shares.open_files} of them for logs, and "
        f"{shares.connections} clients with up to {PER_CONNECTION} each"
    )
    if shares.connections >= CONNECTIONS_WANTED:
        return Finding("file descriptors", Level.OK, limits)
    return Finding(
        "file descriptors",
        Level.WARNING,
        f"{limits}: raise it to {LIMIT_WANTED} or more (LimitNOFILE, ulimit -Hn)",
    )


class Clock:
    """Both clocks at the start and at the end of the checks."""

    def __init__(self) -> None:
        self._wall_s, self._steady_s = time.time(), time.monotonic()

    def judged(self) -> Finding:
        wall_s, steady_s = time.time(), time.monotonic()
        return judge_clock(wall_s, (wall_s - self._wall_s) - (steady_s - self._steady_s))


def judge_clock(now_s: float, jumped_s: float) -> Finding:
    """Judge the clock. now_s: since 1970.

    jumped_s: how much more the wall clock moved than the monotonic one.
    """
    if now_s < EARLIEST_S:
        return Finding(
            "clock",
            Level.FAILED,
            "the clock stands before 2024: set it, retention by time goes by it",
        )
    if abs(jumped_s) * 1000 > CLOCK_STEP_MS_MAX:
        return Finding(
            "clock",
            Level.WARNING,
            f"the clock jumped by {jumped_s:+.1f} s just now: see why it is set instead of slewed "
            "(chrony, systemd-timesyncd)",
        )
    return Finding("clock", Level.OK, "the clock did not jump meanwhile")

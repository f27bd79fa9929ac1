"""The operator's process: builds all parts and runs them. SHELL."""

import asyncio
import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from logfleet import NO_ASSERTIONS
from logfleet.resources.document import GROUP, VERSION

from logfleet_operator import http_server, logs
from logfleet_operator.admin import AdminFactory
from logfleet_operator.brokers import BrokerAdmins
from logfleet_operator.clusters.cluster_reconciler import ClusterReconciler
from logfleet_operator.clusters.etcd_client import EtcdClients
from logfleet_operator.clusters.may_i import AdminPorts, Deciders
from logfleet_operator.clusters.moves import FleetMovers, Movers
from logfleet_operator.credentials import NoCredentials, login
from logfleet_operator.events import Events
from logfleet_operator.handlers import Feed, Watcher, watch_settings
from logfleet_operator.kube import ApiServer, Kube, KubeError, KubeUnavailable
from logfleet_operator.lease_holder import GuardedAdmins, GuardedKube, LeaseHolder, LeaseLost
from logfleet_operator.ownership import Ownership
from logfleet_operator.rebalances.rebalance_reconciler import RebalanceReconciler
from logfleet_operator.settings import Settings, SettingsError
from logfleet_operator.topics.topic_reconciler import TopicReconciler
from logfleet_operator.worker import Worker

CRDS: Final = (f"clusters.{GROUP}", f"topics.{GROUP}", f"rebalances.{GROUP}")
CRDS_RETRY_S: Final = 5.0
WATCHES_STOP_S: Final = 5.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class NotAllowed(Exception):
    """The API server does not let the operator read what it needs to start."""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """The kinds of clients with which the operator reaches brokers.

    movers: makes the client that moves replicas, from this operator's lease holder (None if it
    works without a Lease).
    """

    admins: AdminFactory = field(default_factory=BrokerAdmins)
    deciders: Deciders = field(default_factory=AdminPorts)
    movers: Callable[[LeaseHolder | None], Movers] = FleetMovers


def main(access: BrokerAccess | None = None) -> None:
    """Run the process. access: None for the defaults of `BrokerAccess`."""
    if NO_ASSERTIONS:
        sys.exit(NO_ASSERTIONS)
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(f"logfleet-operator: {error}")
    logs.configure(settings.log_level, as_json=settings.log_json)
    try:
        asyncio.run(run(settings, access or BrokerAccess()))
    except (NoCredentials, NotAllowed, LeaseLost) as error:
        sys.exit(f"logfleet-operator: {error}")


async def run(settings: Settings, access: BrokerAccess) -> None:
    """Operate until SIGTERM or SIGINT. No work is completed first: any step may be the last."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    kube = ApiServer(lambda: login(watch_settings()))
    try:
        work = asyncio.ensure_future(operate(kube, access, settings))
        stop = asyncio.ensure_future(stopped.wait())
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        log.info("operator_stops")
        stop.cancel()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    finally:
        await kube.close()


async def operate(kube: Kube, access: BrokerAccess, settings: Settings) -> None:
    """Watch and reconcile until cancelled, while holding the Lease.

    Raises LeaseLost, NotAllowed.
    """
    leadership, admins = None, access.admins
    if settings.lease_namespace:
        # A new identity for each process, also when its container is restarted (as client-go
        # advises).
        identity = f"{settings.identity}_{uuid.uuid4()}"
        leadership = LeaseHolder(kube, settings.lease_namespace, settings.lease, identity)
        kube, admins = GuardedKube(kube, leadership), GuardedAdmins(admins, leadership)
    etcds = EtcdClients(leadership)
    movers = access.movers(leadership)
    ownership = Ownership(kube, settings.release, Events(kube, settings.identity))
    clusters = ClusterReconciler(
        kube, settings, access.deciders, etcds, movers, ownership=ownership
    )
    topics = TopicReconciler(kube, admins, settings, ownership=ownership, monotonic=time.monotonic)
    rebalances = RebalanceReconciler(kube, settings, movers, ownership=ownership)
    worker = Worker(kube, clusters, topics, rebalances, settings)
    watcher = Watcher(Feed(asyncio.get_running_loop(), worker, topics), settings)
    started = False

    def tick() -> None:
        worker.ticked = time.monotonic()

    async def work() -> None:
        nonlocal started
        await wait_for_crds(kube, worker)
        watcher.start()
        started = True
        log.info("operator_started", namespaces=sorted(settings.namespaces) or "all")
        await worker.run()

    runner = await http_server.serve(
        worker,
        watching=lambda: watcher.watching,
        alive=lambda: watcher.alive or not started,
        leadership=leadership,
        left_alone=lambda: str(ownership),
        port=settings.http_port,
    )
    try:
        if leadership is None:
            await work()
        else:
            await leadership.acquire(tick)
            await _run_together(work(), leadership.keep())
    finally:
        watcher.stop(WATCHES_STOP_S)
        await runner.cleanup()
        if leadership is not None:
            await leadership.release()


async def _run_together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all until one raises or the caller is cancelled, then cancel the rest.

    Raises what the first one raised.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


async def wait_for_crds(kube: Kube, worker: Worker) -> None:
    """Return once the API server serves our kinds in this operator's version.

    Raises NotAllowed.
    """
    while True:
        try:
            missing = [name for name in CRDS if not await _served(kube, name)]
        except KubeUnavailable as error:
            missing = [str(error)]
        if not missing:
            return
        log.warning("crds_missing", missing=missing, version=VERSION, retry_s=CRDS_RETRY_S)
        worker.ticked = time.monotonic()
        await asyncio.sleep(CRDS_RETRY_S)


async def _served(kube: Kube, name: str) -> bool:
    try:
        crd = await kube.get("CustomResourceDefinition", "", name)
    except KubeError as error:
        if error.status not in {401, 403}:
            raise
        raise NotAllowed(
            f"may not read CustomResourceDefinition {name}: give the operator's ServiceAccount the "
            f"rights of charts/operator/templates/rbac.yaml ({error})"
        ) from error
    versions = crd["spec"]["versions"] if crd is not None else []
    return any(version["name"] == VERSION and version["served"] for version in versions)


if __name__ == "__main__":
    main()

"""The operator's process: everything meets here. SHELL."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import Final

import structlog
from logfleet.resources.document import GROUP, VERSION

from logfleet_operator import http_server, logs
from logfleet_operator.admin import AdminFactory
from logfleet_operator.brokers import BrokerAdmins
from logfleet_operator.clusters.cluster_reconciler import ClusterReconciler
from logfleet_operator.clusters.may_i import AdminPorts, Deciders
from logfleet_operator.credentials import NoCredentials, login
from logfleet_operator.handlers import Feed, Watcher, watch_settings
from logfleet_operator.kube import ApiServer, Kube, KubeError, KubeUnavailable
from logfleet_operator.settings import Settings, SettingsError
from logfleet_operator.topics.topic_reconciler import TopicReconciler
from logfleet_operator.worker import Worker

CRDS: Final = (f"clusters.{GROUP}", f"topics.{GROUP}")
CRDS_RETRY_S: Final = 5.0
WATCHES_STOP_S: Final = 5.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class NotAllowed(Exception):
    """The API server does not let the operator read what it cannot begin without."""


def main(admins: AdminFactory | None = None, deciders: Deciders | None = None) -> None:
    """The whole life of the process. admins, deciders: who asks brokers, if not `BrokerAdmins` and `AdminPorts`."""
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(f"logfleet-operator: {error}")
    logs.configure(settings.log_level, as_json=settings.log_json)
    try:
        asyncio.run(run(settings, admins or BrokerAdmins(), deciders or AdminPorts()))
    except (NoCredentials, NotAllowed) as error:
        sys.exit(f"logfleet-operator: {error}")


async def run(settings: Settings, admins: AdminFactory, deciders: Deciders) -> None:
    """Operate until SIGTERM or SIGINT. Nothing is finished first: any step may be the last."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    kube = ApiServer(lambda: login(watch_settings()))
    try:
        work = asyncio.ensure_future(operate(kube, admins, deciders, settings))
        stop = asyncio.ensure_future(stopped.wait())
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        log.info("operator_stops")
        stop.cancel()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    finally:
        await kube.close()


async def operate(kube: Kube, admins: AdminFactory, deciders: Deciders, settings: Settings) -> None:
    """Watch and work until cancelled."""
    clusters = ClusterReconciler(kube, settings, deciders)
    topics = TopicReconciler(kube, admins, settings, monotonic=time.monotonic)
    worker = Worker(kube, clusters, topics, settings)
    watcher = Watcher(Feed(asyncio.get_running_loop(), worker, topics), settings)
    started = False
    runner = await http_server.serve(
        worker,
        watching=lambda: watcher.watching,
        alive=lambda: watcher.alive or not started,
        port=settings.http_port,
    )
    try:
        await wait_for_crds(kube, worker)
        watcher.start()
        started = True
        log.info("operator_started", namespaces=sorted(settings.namespaces) or "all")
        await worker.run()
    finally:
        watcher.stop(WATCHES_STOP_S)
        await runner.cleanup()


async def wait_for_crds(kube: Kube, worker: Worker) -> None:
    """Return once the API server serves our kinds in the version that this operator speaks.

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

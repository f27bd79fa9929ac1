"""A connection to a cluster that a Python worker keeps between its tasks.

Spark hands one task after another to the same Python worker. For a small task, connecting and
asking for API versions and metadata would take two thirds of its processor time. Spark ends a
worker that has had no task for a minute (PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS), which also
closes the connection.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from logfleet_spark.client_options import ClientOptions
from logfleet_spark.cluster import Cluster

LEASE_S = 30.0
"""A connection that was idle for longer is replaced.

Brokers may have come and gone since, so its metadata is old.
"""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A connection that no task uses now.

    owner: process and thread to which its event loop belongs. used_s: when a task last used it, in
    monotonic seconds.
    """

    cluster: Cluster
    bootstrap: str
    options: ClientOptions
    owner: tuple[int, int]
    used_s: float


_kept: _Kept | None = None


def _process_and_thread() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _take_kept(bootstrap: str, options: ClientOptions) -> Cluster | None:
    """Return the kept connection if it belongs to this process and thread, fits, and is recent.

    It fits if it has the same servers and options. A connection of this thread that does not fit is
    closed.
    """
    global _kept
    kept, _kept = _kept, None
    if kept is None or kept.owner != _process_and_thread():
        return None
    fresh = time.monotonic() - kept.used_s <= LEASE_S
    if fresh and (kept.bootstrap, kept.options) == (bootstrap, options):
        return kept.cluster
    kept.cluster.close()
    return None


@contextmanager
def kept_cluster(bootstrap: str, options: ClientOptions) -> Iterator[Cluster]:
    """A connection to a cluster for one task.

    It is kept for the next task if this one ends well, and closed if this one fails or is given up.
    """
    global _kept
    cluster = _take_kept(bootstrap, options) or Cluster(bootstrap, options)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    if (
        _kept is not None and _kept.owner == _process_and_thread()
    ):  # a task that ran within this one kept it
        _kept.cluster.close()
    _kept = _Kept(cluster, bootstrap, options, _process_and_thread(), time.monotonic())

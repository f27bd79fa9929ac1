"""One connection to a cluster that a Python worker keeps between its tasks.

Spark hands task after task to the same Python worker. To connect, to ask for versions and for
metadata takes a small task two thirds of its processor time. A worker without tasks is ended by
Spark after a minute (PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS), which closes what it kept.
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
"""A connection that was not used for so long is replaced.

Brokers may have come and gone, and what is known of them is old.
"""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What no task uses now.

    owner: process and thread that its event loop is of; used_s: monotonic seconds.
    """

    cluster: Cluster
    bootstrap: str
    options: ClientOptions
    owner: tuple[int, int]
    used_s: float


_kept: _Kept | None = None


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _taken(bootstrap: str, options: ClientOptions) -> Cluster | None:
    """The one that is kept, if it is of this process and thread, for the same cluster and recent.

    Another one of ours is closed.
    """
    global _kept
    kept, _kept = _kept, None
    if kept is None or kept.owner != _here():
        return None
    fresh = time.monotonic() - kept.used_s <= LEASE_S
    if fresh and (kept.bootstrap, kept.options) == (bootstrap, options):
        return kept.cluster
    kept.cluster.close()
    return None


@contextmanager
def kept_cluster(bootstrap: str, options: ClientOptions) -> Iterator[Cluster]:
    """A cluster for one task.

    It is kept for the next one if the task ends well, and closed if it fails or is given up.
    """
    global _kept
    cluster = _taken(bootstrap, options) or Cluster(bootstrap, options)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    if _kept is not None and _kept.owner == _here():  # of a task within this one
        _kept.cluster.close()
    _kept = _Kept(cluster, bootstrap, options, _here(), time.monotonic())

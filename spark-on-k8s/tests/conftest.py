import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from logfleet_spark.jobs.expressions import SESSION
from logfleet_spark.jobs.tables import DELTA
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import SparkSession

from e2e.harness.processes import Broker, Rig

# without this the Python workers are whatever python3 stands first in PATH
os.environ["PYSPARK_PYTHON"] = sys.executable

JVM = (
    # short runs: compiling less saves more than faster code would
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmn400m",
    # in 48 MiB, the default of that level, compiled code makes room for other code and is compiled
    # again later
    "-XX:ReservedCodeCacheSize=256m",
    # Hadoop starts chmod for each file of a checkpoint
    "-Djdk.lang.Process.launchMechanism=VFORK",
)
FOR_SMALL_BATCHES = {
    # what only the pages of Spark show
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.ui.showConsoleProgress": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}


LONGEST_FIRST = (
    *("test_kill_points", "test_program", "test_histories", "test_window_counts_job"),
    *("test_odd_values", "test_kills", "test_topic_to_table", "test_stream", "test_database"),
)
"""Files. `make spark` deals them out to two processes; one that takes minutes must not come last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the order within a file stays."""

    def place(item: pytest.Item) -> int:
        file = item.path.stem
        return LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=place)


def remember_names(of: type[JVMView] | type[JavaPackage]) -> None:
    """Ask Java once what a name means.

    For a name such as `jvm.py4j` Java searches all jars of Spark for a class of that name in each
    of ten packages. PySpark asks 28 times for each exception that it converts, and the end of each
    map in the progress of a query is such an exception: a fifth of what Java did in these tests.
    """
    ask = of.__getattr__

    def look_up(self: Any, name: str) -> Any:
        found = ask(self, name)
        if isinstance(found, JavaPackage | JavaClass):
            vars(self)[name] = found
        return found

    of.__getattr__ = look_up


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[SparkSession]:
    remember_names(JVMView)
    remember_names(JavaPackage)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("logfleet-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.extraJavaOptions", " ".join(JVM))
        .config(map={**DELTA, **SESSION, **FOR_SMALL_BATCHES})
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def rig(tmp_path_factory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    yield rig
    rig.close()


@pytest.fixture(scope="session")
def broker(rig: Rig) -> Broker:
    """One broker for all tests: each uses topics of its own, with records of 1970 that nothing shall delete."""
    return rig.broker({"log.retention.ms": "-1"})


@pytest.fixture(scope="session")
def expiring_broker(rig: Rig) -> Broker:
    """A broker that looks for what may be deleted all the time."""
    return rig.broker({"log.retention.check.interval.ms": "100"})

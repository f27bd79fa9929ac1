import os
import sys
from collections.abc import Iterator

import pytest
from logfleet_spark.jobs.expressions import SESSION
from logfleet_spark.jobs.tables import DELTA
from pyspark.sql import SparkSession

from e2e.harness.processes import Broker, Rig

# without this the Python workers are whatever python3 stands first in PATH
os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("logfleet-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        # short runs: compiling less saves more than faster code would
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config(map={**DELTA, **SESSION})
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

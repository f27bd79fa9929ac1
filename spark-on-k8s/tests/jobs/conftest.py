import pytest
from logfleet_spark.jobs.metrics import Metrics
from logfleet_spark.jobs.running import Job, Stop


@pytest.fixture(scope="session")
def metrics(spark):
    """Of one session, as Spark takes a source of one name once; tests look at what is added."""
    return Metrics(spark)


@pytest.fixture
def job(spark, metrics):
    """An application of ours in the tests' session."""
    running = Job(spark, metrics, Stop())
    yield running
    running.close()

import pytest
from logfleet_spark.jobs.metrics import Metrics
from logfleet_spark.jobs.running import Job, Stop


@pytest.fixture
def job(spark):
    """An application of ours in the tests' session."""
    running = Job(spark, Metrics(), Stop())
    yield running
    running.close()

import pytest
from logfleet_spark.jobs.metrics import Metrics
from logfleet_spark.jobs.running import Job, Stop


@pytest.fixture
def repeat_last_batch(tmp_path):
    """Takes the last batch out of a checkpoint's commits, as if the driver had ended before it."""

    def repeat(name: str) -> None:
        commits = tmp_path / name / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        commits.joinpath(f".{last}.crc").unlink(missing_ok=True)
        commits.joinpath(str(last)).unlink()

    return repeat


@pytest.fixture
def job(spark):
    """An application of ours in the tests' session."""
    running = Job(spark, Metrics(), Stop())
    yield running
    running.close()

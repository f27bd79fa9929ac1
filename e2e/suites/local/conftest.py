"""Suites that need no Kubernetes: clients against brokers that run as processes on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.command_line import said
from e2e.harness.processes import Broker, Rig
from e2e.oracle.brokers import Pair

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Apache Kafka and a broker, for all tests of the group beside-kafka."""
    with Pair(tmp_path_factory.mktemp("both")) as pair:
        yield pair


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Brokers and fleets for one test. If it fails, the ends of their logs are shown; whole, they stay in tmp_path."""
    made = Rig(tmp_path)
    yield made
    made.close()
    if request.node.stash.get(FAILED, False):
        for name, tail in made.logs():
            print(f"--- {name}: the end of its log\n{tail}")


@pytest.fixture
def one_topic(rig: Rig) -> Broker:
    """A broker with the topic t of two partitions."""
    broker = rig.broker()
    said(broker, "topic", "create", "t", "-p", "2")
    return broker

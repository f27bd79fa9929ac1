"""Suites that need no Kubernetes: clients against brokers that run as processes on loopback."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from logfleet.testing import Broker

from e2e.compare.brokers import Pair
from e2e.harness.processes import Rig

FAILED = pytest.StashKey[bool]()
A_CLIENTS_SOCKET = "ignore:unclosed <socket:ResourceWarning"
"""kafka-python closes a connection with bytes still to be sent in its I/O thread, which may end before: the collector has it then."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", A_CLIENTS_SOCKET)


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


@pytest.fixture(autouse=True)
def nothing_is_left_to_a_later_test() -> Iterator[None]:
    """What the garbage collector complains about is told of the test that left it, not of one that happens to run then."""
    yield
    gc.collect()


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
def one_topic(kafka_broker: Broker) -> Broker:
    """A broker with the topic t of two partitions."""
    kafka_broker.create_topic("t", partitions=2)
    return kafka_broker

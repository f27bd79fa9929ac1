import asyncio
from collections.abc import Callable, Mapping

import pytest
import pytest_asyncio
import uvloop

from broker_image.tests.unit.controller.cluster_rig import Cluster
from broker_image.tests.unit.controller.running.controller_rig import Store
from broker_image.tests.unit.log.log_rig import LogRig
from broker_image.tests.unit.waiting import Until

# What touches transports and descriptors must hold on both loops.
ON_BOTH_LOOPS = {
    "test_connection.py",
    "test_connection_descriptors.py",
    "test_connection_files.py",
    "test_file_sender.py",
    "test_listener.py",
    "test_transport.py",
}


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.name in ON_BOTH_LOOPS:
        return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture
def until() -> Until:
    """Waits for a condition that only the loop's own work can bring about."""

    async def wait(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110  the subjects have no event for it
            await asyncio.sleep(0)

    return wait


@pytest.fixture
def rig(tmp_path) -> LogRig:
    return LogRig(str(tmp_path))


@pytest.fixture
def cluster() -> Cluster:
    """A metadata store in memory with a controller at work."""
    return Cluster()


@pytest_asyncio.fixture
async def store(tmp_path):
    """An embedded store whose answers the test can have lost, refused or late."""
    opened = await Store.open(tmp_path / "metadata")
    yield opened
    await opened.close()

import pytest_asyncio

from broker_image.tests.unit.node.cluster.controller_rig import Store


@pytest_asyncio.fixture
async def store(tmp_path):
    """An embedded store whose answers the test can have lost, refused or late."""
    opened = await Store.open(tmp_path / "metadata")
    yield opened
    await opened.close()

import pytest

from broker_image.tests.unit.replication.store_rig import Store


@pytest.fixture
def store() -> Store:
    return Store()

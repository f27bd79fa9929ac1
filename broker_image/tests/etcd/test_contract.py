import pytest

from broker_image.tests.contract.metadata_store import MetadataStoreContract

pytestmark = pytest.mark.asyncio


class TestContract(MetadataStoreContract):
    pass

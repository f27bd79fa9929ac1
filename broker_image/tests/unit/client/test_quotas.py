from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.quotas import Quota, alter_quota, describe_quotas
from logfleet.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({}).running() as running:
        yield running


@pytest_asyncio.fixture
async def client(broker: FakeBroker) -> AsyncIterator[Client]:
    async with Client(broker.bootstrap, timeout_ms=5_000) as client:
        yield client


async def test_quotas_are_found_by_what_their_entities_have(
    broker: FakeBroker, client: Client
) -> None:
    kind = DescribeClientQuotasResponse
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type="user", entity_name=None)],
        values=[kind.ValueData(key="producer_byte_rate", value=5.0)],
    )
    broker.answers[DescribeClientQuotasRequest] = lambda _: kind(entries=[entry])
    found = await describe_quotas(client, {"user": None, "client-id": "c"}, strict=True)
    assert found == [Quota({"user": None}, {"producer_byte_rate": 5.0})]
    (request,) = broker.of(DescribeClientQuotasRequest)
    asked = [(each.entity_type, each.match_type, each.match) for each in request.components]
    assert asked == [("user", 1, None), ("client-id", 0, "c")]
    assert request.strict


async def test_a_filter_that_is_refused_says_why(broker: FakeBroker, client: Client) -> None:
    broker.answers[DescribeClientQuotasRequest] = lambda _: DescribeClientQuotasResponse(
        error_code=42, error_message="no", entries=None
    )
    with pytest.raises(KafkaError, match="quotas: no"):
        await describe_quotas(client, {})


async def test_limits_are_set_and_removed_in_one_request(
    broker: FakeBroker, client: Client
) -> None:
    kind = AlterClientQuotasResponse
    broker.answers[AlterClientQuotasRequest] = lambda _: kind(entries=[kind.EntryData()])
    await alter_quota(
        client, {"ip": "::1"}, set_={"connection_creation_rate": 3.0}, delete=["nope"]
    )
    (request,) = broker.of(AlterClientQuotasRequest)
    (entry,) = request.entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("ip", "::1")]
    operations = [(each.key, each.value, each.remove) for each in entry.ops]
    assert operations == [("connection_creation_rate", 3.0, False), ("nope", 0.0, True)]


async def test_a_refused_limit_says_why(broker: FakeBroker, client: Client) -> None:
    kind = AlterClientQuotasResponse
    row = kind.EntryData(error_code=42, error_message="must be greater than 0")
    broker.answers[AlterClientQuotasRequest] = lambda _: kind(entries=[row])
    with pytest.raises(KafkaError, match="quota: must be greater than 0"):
        await alter_quota(client, {"user": "u"}, set_={"producer_byte_rate": 0.0})

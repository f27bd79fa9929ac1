import pytest
from logfleet.config.connection_limits import connection_limits
from logfleet.config.topic import BrokerLayers
from logfleet.net.connection_rules import resolved

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("host", ["10..0.1", ".example.com", "x" * 64])
async def test_a_name_that_is_none_is_left_out(host):
    text = f"{host}:5,127.0.0.1:6"
    limits = connection_limits(BrokerLayers({"max.connections.per.ip.overrides": text}), [])
    assert (await resolved(limits)).by_address == {"127.0.0.1": 6}

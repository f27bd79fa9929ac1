import pytest
from logfleet.metadata.kinds.brokers import BROKER, FENCED, BrokerValue
from logfleet.metadata.store import Put
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import UnregisterBrokerRequest

pytestmark = pytest.mark.asyncio
OTHER = 4711


async def unregister(node, broker_id: int) -> tuple[str, str | None]:
    answer = await node.ask(UnregisterBrokerRequest(broker_id=broker_id))
    return ErrorCode(answer.error_code).name, answer.error_message


async def test_a_broker_that_has_stopped_is_forgotten(node):
    value = BROKER.encode(BrokerValue("i", ()))
    await node.write(Put(BROKER.key(OTHER), value))
    await node.until(lambda image: image.brokers[OTHER].is_active)
    assert await unregister(node, OTHER) == (
        "INVALID_REQUEST",
        f"Broker {OTHER} is running: stop it first.",
    )
    await node.write(BROKER.delete(OTHER))
    await node.until(lambda image: image.fences[OTHER].state == FENCED)
    assert await unregister(node, OTHER) == ("NONE", None)
    assert OTHER not in node.follower.image.fences
    assert await unregister(node, OTHER) == (
        "BROKER_ID_NOT_REGISTERED",
        f"Broker ID {OTHER} is not currently registered.",
    )

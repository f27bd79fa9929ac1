from pathlib import Path
from typing import Any

import pytest
from logfleet.node.broker import Broker
from logfleet.wire.messages import IncrementalAlterConfigsRequest

from broker_image.tests.unit.node.broker_rig import ask_broker, config, create_topic
from broker_image.tests.unit.node.partitions.topic_rig import led

pytestmark = pytest.mark.asyncio


async def set_retention(broker: Broker, retention_ms: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name="retention.ms", value=str(retention_ms)
            )
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await ask_broker(broker, request, 1)
    assert [row.error_code for row in answer.responses] == [0]
    await broker.local.until_applied(broker.image.revision)


async def test_a_log_obeys_what_was_set_while_it_was_not_led(tmp_path: Path, until: Any) -> None:
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
        broker.local.lost_registration()
        await set_retention(broker, 1000)
        broker.local.registered(broker.image.brokers[1].epoch)
        await until(lambda: broker.partitions.get("t", 0) is not None)
        assert led(broker).config.retention_ms == 1000

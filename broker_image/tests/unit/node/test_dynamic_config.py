import pytest
from logfleet.config.dynamic import BrokerPart
from logfleet.config.topic import BrokerLayers
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kinds.configs import BROKER_CONFIG
from logfleet.metadata.store import KeyValue
from logfleet.node.dynamic_config import DynamicConfig
from structlog.testing import capture_logs

pytestmark = pytest.mark.asyncio
OVERRIDES = "max.connections.per.ip.overrides"


def image_with(values: dict[str, str]) -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    builder.add(KeyValue(BROKER_CONFIG.key(None), BROKER_CONFIG.encode(values), 1, 1, 1))
    return builder.build(1)[0]


async def test_a_stored_value_that_cannot_be_used_is_reported_once_and_left_out():
    applied: list[BrokerLayers] = []

    async def connections(layers: BrokerLayers) -> None:
        applied.append(layers)

    config = DynamicConfig(
        BrokerLayers({OVERRIDES: "h:1"}), 7, {BrokerPart.CONNECTIONS: connections}
    )
    with capture_logs() as logged:
        await config.update(image_with({OVERRIDES: "no number", "max.connections": "5"}))
        await config.update(image_with({OVERRIDES: "no number", "max.connections": "6"}))
    assert [layers.effective_value(OVERRIDES) for layers in applied] == ["h:1", "h:1"]
    assert [layers.effective_value("max.connections") for layers in applied] == ["5", "6"]
    problems = [entry for entry in logged if entry["event"] == "config_not_applied"]
    assert [(entry["key"], entry["log_level"]) for entry in problems] == [(OVERRIDES, "error")]

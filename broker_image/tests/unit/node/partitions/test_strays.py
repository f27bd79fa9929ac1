from pathlib import Path

import pytest
from logfleet.node.broker import Broker

from broker_image.tests.unit.node.broker_rig import config, create_topic
from broker_image.tests.unit.node.partitions.topic_rig import append, delete_topic, led

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("metadata", [None, "", "version: 0\n", "version: 0\ntopic_id: ?"])
async def test_a_log_without_a_topic_id_goes_with_the_topic_of_its_name(
    tmp_path: Path, metadata: str | None
) -> None:
    """A power loss may cause that; Kafka calls such a log a stray (TopicsImage.isStrayReplica)."""
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t")
    file = tmp_path / "data" / "t-0" / "partition.metadata"
    told = file.read_text()
    if metadata is None:
        file.unlink()
    else:
        file.write_text(metadata)
    async with Broker(config(tmp_path)) as broker:
        assert file.read_text() == told, "before anything is appended"
        append(led(broker), 5)
        await delete_topic(broker)
        assert not file.exists()
        await create_topic(broker, "t")
        assert led(broker).log_end_offset == 0
        assert file.read_text() != told

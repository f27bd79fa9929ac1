"""A log directory that was away: what is found when it is back."""

import shutil
from pathlib import Path

import pytest
from logfleet.node.broker import Broker, StartError
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteTopicsRequest,
)

from broker_image.tests.unit.node.broker_rig import ask_broker, config, create_topic

pytestmark = pytest.mark.asyncio


class Dirs:
    """Two log directories, the metadata in the first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.one, self.two = path / "one", path / "two"

    def broker(self, *dirs: Path, **given: str) -> Broker:
        log_dirs = ",".join(map(str, dirs or (self.one, self.two)))
        return Broker(config(self.path, **{"log.dirs": log_dirs}, **given))

    async def filled(self) -> set[int]:
        """Four partitions of topic `t`, two in each directory; those that are in the second."""
        async with self.broker() as broker:
            await create_topic(broker, "t", 4)
        there = {int(path.name.removeprefix("t-")) for path in self.two.glob("t-*")}
        assert len(there) == 2, "logs are spread over both directories"
        return there


@pytest.fixture
def dirs(tmp_path: Path) -> Dirs:
    return Dirs(tmp_path)


def offline(broker: Broker, topic: str, partitions: int) -> set[int]:
    found = {index: broker.partitions.find(topic, index) for index in range(partitions)}
    served = {index for index in found if broker.partitions.get(topic, index) is not None}
    assert all(found[index] is ErrorCode.KAFKA_STORAGE_ERROR for index in found.keys() - served)
    return found.keys() - served


async def test_a_log_in_two_directories_refuses_the_start(dirs: Dirs) -> None:
    """Kafka's LogManager: nobody but a person knows which of them is the right one."""
    there = await dirs.filled()
    name = f"t-{min(there)}"
    shutil.copytree(dirs.two / name, dirs.one / name)
    with pytest.raises(StartError) as caught:
        await dirs.broker().__aenter__()
    assert str(dirs.one / name) in str(caught.value)
    assert str(dirs.two / name) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_former_topic_of_the_same_name_in_a_directory_that_is_back_is_set_aside(
    dirs: Dirs,
) -> None:
    there = await dirs.filled()
    async with dirs.broker(dirs.one) as broker:
        await ask_broker(broker, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await create_topic(broker, "t", 4)
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
        assert {path.name[:3] for path in dirs.two.glob("*-stray")} == {f"t-{i}" for i in there}
        assert all((dirs.one / f"t-{index}").exists() for index in range(4))

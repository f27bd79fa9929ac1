"""A log directory that is away at start: what it holds stays offline, and no empty log takes its place."""

import shutil
from pathlib import Path

import pytest
import structlog
from logfleet.io.sqlite import SqliteStore
from logfleet.metadata import keys
from logfleet.metadata.store import Delete, Txn
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


def recorded(broker: Broker) -> frozenset[str]:
    """The directories that the store says may hold logs of this broker."""
    return broker.image.directories[1].ids


@pytest.mark.parametrize("how", ["emptied", "taken out of log.dirs"])
async def test_what_a_missing_directory_holds_stays_offline_however_often_it_starts(
    dirs: Dirs, how: str
) -> None:
    there = await dirs.filled()
    shutil.rmtree(dirs.two)
    present = [dirs.one, dirs.two] if how == "emptied" else [dirs.one]
    for number in range(3):
        with structlog.testing.capture_logs() as logs:
            async with dirs.broker(*present) as broker:
                (said,) = (row for row in logs if row["event"] == "log_directories_missing")
                assert (said["partitions"], len(said["directories"])) == (2, 1)
                assert offline(broker, "t", 4) == there
                await create_topic(broker, f"later-{number}", 4)
                for earlier in range(number + 1):
                    assert offline(broker, f"later-{earlier}", 4) == set()
        made = {path.name for path in dirs.path.glob("*/t-*")}
        assert made == {f"t-{index}" for index in {0, 1, 2, 3} - there}


async def test_a_broker_whose_volume_was_replaced_by_an_empty_one_leads_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet's metadata is elsewhere: it knows the topics of a broker that comes back without its disk."""

    async def store(_: object) -> SqliteStore:
        return await SqliteStore.open(tmp_path / "metadata.db")

    monkeypatch.setattr("logfleet.node.broker.open_store", store)
    async with Broker(config(tmp_path)) as broker:
        await create_topic(broker, "t", 2)
    for _ in range(2):
        shutil.rmtree(tmp_path / "data")
        async with Broker(config(tmp_path)) as broker:
            assert offline(broker, "t", 2) == {0, 1}
        assert list((tmp_path / "data").glob("t-*")) == []


async def test_a_directory_that_is_back_is_served_again_and_nothing_else_is_waited_for(
    dirs: Dirs, until
) -> None:
    there = await dirs.filled()
    dirs.two.rename(dirs.path / "elsewhere")
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == there
        assert len(recorded(broker)) == 3, "the empty one may hold logs by now"
    shutil.rmtree(dirs.two)
    (dirs.path / "elsewhere").rename(dirs.two)
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
        await until(lambda: len(recorded(broker)) == 2)
        online = {log_dir.identity.directory_id for log_dir in broker.log_dirs}
        assert recorded(broker) == online


async def test_a_missing_directory_is_forgotten_with_the_last_topic_that_it_held(
    dirs: Dirs, until
) -> None:
    there = await dirs.filled()
    async with dirs.broker(dirs.one) as broker:
        assert offline(broker, "t", 4) == there
        assert len(recorded(broker)) == 2
        await ask_broker(broker, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await until(lambda: len(recorded(broker)) == 1)
        assert broker.partitions.offline == set()
        await create_topic(broker, "t", 4)
        assert offline(broker, "t", 4) == set()


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


async def test_data_of_a_version_without_the_record_is_served_and_gets_one(dirs: Dirs) -> None:
    await dirs.filled()
    store = await SqliteStore.open(dirs.one / "logfleet-metadata.db")
    await store.txn(Txn(success=[Delete(keys.directories(1))]))
    await store.close()
    async with dirs.broker() as broker:
        assert offline(broker, "t", 4) == set()
        assert len(recorded(broker)) == 2

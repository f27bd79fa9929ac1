"""What happens to a broker's disks and registration is among its decisions."""

import json
from pathlib import Path

import pytest
from logfleet.log.names import TopicPartition
from logfleet.node.broker import Broker
from logfleet.telemetry.decisions import Query

from broker_image.tests.unit.node.broker_rig import config, create_topic

pytestmark = pytest.mark.asyncio


def told(broker: Broker, *kinds: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in broker.decisions.select(Query(kind=kinds))]


async def test_a_directory_that_fails_is_reported_with_the_error_of_the_disk(
    tmp_path: Path,
) -> None:
    dirs = f"{tmp_path}/a,{tmp_path}/b"
    async with Broker(config(tmp_path, log_dirs=dirs)) as broker:
        await create_topic(broker, "t")
        broken = next(each.path for each in broker.rooms.disks.log_dirs if each.logs)
        broker.rooms.disks.failed(TopicPartition("t", 0), OSError(5, "Input/output error"))
        broker.rooms.disks.failed(TopicPartition("t", 0), OSError(5, "again"))
        (failed,) = told(broker, "directory_failed")
        assert failed["cause"] == (
            f"log directory {broken} is given up: [Errno 5] Input/output error"
        )
        assert failed["facts"] == {"path": broken, "directories_left": 1}


async def test_a_directory_that_is_bad_at_the_start_is_reported(tmp_path: Path) -> None:
    dirs = f"{tmp_path}/b,{tmp_path}/a"
    async with Broker(config(tmp_path, log_dirs=dirs)):
        pass
    (tmp_path / "a").rename(tmp_path / "elsewhere")
    (tmp_path / "a").write_text("no directory")
    async with Broker(config(tmp_path, log_dirs=dirs)) as broker:
        broker.rooms.disks.failed.check()
        (failed,) = told(broker, "directory_failed")
        assert failed["facts"] == {"path": f"{tmp_path}/a", "directories_left": 1}


async def test_a_disk_that_fills_up_or_stalls_is_reported_once_and_when_it_is_over(
    tmp_path: Path,
) -> None:
    async with Broker(config(tmp_path)) as broker:
        (log_dir,) = broker.rooms.disks.log_dirs
        disk = broker.rooms.disks.log_dirs.open_files.disk(log_dir.path)
        for is_bad in (True, True, False):
            disk.is_held_up = is_bad
            (
                broker.rooms.disks.disk_space.full.add
                if is_bad
                else broker.rooms.disks.disk_space.full.discard
            )(log_dir.path)
            broker.rooms.disks.failed.check()
        found = told(broker, "refusal", "stall")
        assert [each["cause"] for each in found if each.get("facts") == {"path": log_dir.path}] == [
            f"the disk of {log_dir.path} is full: records are refused",
            f"the disk of {log_dir.path} is slow: a thread writes to it",
            f"{log_dir.path} is not full any more: records are taken again",
            f"{log_dir.path} is not written by a thread any more",
        ]


async def test_a_registration_that_comes_and_goes_is_recorded_over_a_restart(
    tmp_path: Path,
) -> None:
    kinds = ("registered", "registration_lost")
    async with Broker(config(tmp_path)) as broker:
        (first,) = told(broker, *kinds)
        assert first["kind"] == "registered"
        broker.opened.membership._registration_lost("the lease has ended")
        last = told(broker, *kinds)[-1]
        assert (last["kind"], last["cause"]) == ("registration_lost", "the lease has ended")
    async with Broker(config(tmp_path)) as broker:
        found = told(broker, *kinds)
        assert [each["kind"] for each in found] == [*kinds, "registered"]
        numbers = [each["number"] for each in told(broker)]
        assert numbers == list(range(1, len(numbers) + 1))

import asyncio
from collections.abc import Callable, Mapping

import pytest
import pytest_asyncio
import uvloop
from logfleet.io.files import Files, PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.names import TopicPartition
from logfleet.node.log_loader import LoadRequest, prepare_directory
from logfleet.node.open_files import OpenFiles
from logfleet.node.partition_log import PartitionLog
from logfleet.node.trash import Trash

from broker_image.tests.unit.node.controller_rig import Store
from broker_image.tests.unit.node.waiting import Until

# What touches transports and descriptors must hold on both loops.
ON_BOTH_LOOPS = {
    "test_connection.py",
    "test_connection_descriptors.py",
    "test_file_sender.py",
    "test_listener.py",
}


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.name in ON_BOTH_LOOPS:
        return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest_asyncio.fixture
async def store(tmp_path):
    """An embedded store whose answers the test can have lost, refused or late."""
    opened = await Store.open(tmp_path / "metadata")
    yield opened
    await opened.close()


@pytest.fixture
def until() -> Until:
    """Waits for a condition that only the loop's own work can bring about."""

    async def wait(condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110  the subjects have no event for it
            await asyncio.sleep(0)

    return wait


class LogRig:
    """One partition's directory, to be opened as often as a test wants, cleanly or as after a crash."""

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.files = files or PosixFiles()
        self.open_files = OpenFiles(self.files)
        self.trash = Trash(self.open_files)
        self.directory = f"{path}/topic-0"
        prepare_directory(self.open_files, self.directory, "bQrxV1XaQAyDOV5OYVsTsQ")

    def open(
        self,
        config: LogConfig | None = None,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        now_ms: int = 0,
        first_dirty_offset: int = 0,
        gaps_are_damage: bool = True,
    ) -> PartitionLog:
        self.open_files = OpenFiles(self.files)
        self.trash = Trash(self.open_files)
        request = LoadRequest(
            directory=self.directory,
            config=config or LogConfig(),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
            first_dirty_offset=first_dirty_offset,
            gaps_are_damage=gaps_are_damage,
        )
        return PartitionLog(TopicPartition("topic", 0), self.open_files, self.trash, request)

    def flush(self, log: PartitionLog) -> None:
        job = log.begin_flush()
        job.run(self.files)
        log.complete_flush(job)

    def close(self, log: PartitionLog) -> None:
        job = log.close()
        job.run(self.files)
        log.complete_flush(job)

    def names(self, suffix: str = "") -> list[str]:
        listed = self.files.list_directory(self.directory)
        return sorted(entry.name for entry in listed if entry.name.endswith(suffix))


@pytest.fixture
def rig(tmp_path) -> LogRig:
    return LogRig(str(tmp_path))

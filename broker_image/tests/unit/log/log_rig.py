"""One partition's log in a test's hands."""

from logfleet.io.files import Files, PosixFiles
from logfleet.log.config import LogConfig
from logfleet.log.directories.trash import Trash
from logfleet.log.names import TopicPartition
from logfleet.log.partition_log import PartitionLog
from logfleet.log.recovery.loader import LoadRequest, prepare_directory
from logfleet.log.segments.open_files import OpenFiles


class LogRig:
    """One partition's directory; a test may open it repeatedly, cleanly or as after a crash."""

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

    def truncate(
        self, log: PartitionLog, offset: int, *, now_ms: int = 0, empties: bool = False
    ) -> None:
        truncate(log, offset, now_ms=now_ms, empties=empties)

    def names(self, suffix: str = "") -> list[str]:
        listed = self.files.list_directory(self.directory)
        return sorted(entry.name for entry in listed if entry.name.endswith(suffix))


def truncate(log: PartitionLog, offset: int, *, now_ms: int = 0, empties: bool = False) -> None:
    """As a Truncater does it, at once."""
    truncation = log.begin_truncation(offset, now_ms, empties=empties)
    truncation.find()
    log.lower_end(truncation.end_offset)
    truncation.run()
    log.complete_truncation(truncation)

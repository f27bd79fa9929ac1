"""The checkpoint files of a log directory: collected on the loop, written in a thread."""

from collections.abc import Sequence

from logfleet.io.files import Files, write_file
from logfleet.log.checkpoints.files import format_offsets, offset_line
from logfleet.log.names import (
    FIRST_DIRTY_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    TopicPartition,
)
from logfleet.log.partition_log import PartitionLog

ALL = (RECOVERY_POINTS, LOG_STARTS, FIRST_DIRTY_OFFSETS, HIGH_WATERMARKS)
"""All checkpoint files of a log directory, in the order in which they are written."""


class CheckpointJob:
    """The new content of some checkpoint files.

    written: content that the directory's files are sure to have, by name. A file whose content is
    the same is not written again, except the recovery points: that write also makes durable that
    logs have left the directory. points: the recovery point of each log, as this job writes it.
    departures: how many logs had left the directory when the job began.
    """

    def __init__(
        self, directory: str, names: Sequence[str], written: dict[str, bytes], departures: int
    ) -> None:
        self.points: list[tuple[PartitionLog, int]] = []
        self.departures = departures
        self._directory = directory
        self._written = written
        self._lines: dict[str, list[str]] = {name: [] for name in names}

    def add(self, partition: TopicPartition, log: PartitionLog, high_watermark: int | None) -> None:
        """Add the lines of one log.

        The log start is left out if it is 0. It is written even if it is a segment's base offset: a
        power loss may bring back the segments before it, as nothing makes their removal durable
        before this file. Kafka leaves such a start out (LogManager.checkpointLogStartOffsetsInDir),
        but reads it.
        """
        point = log.recovery_point
        self.points.append((log, point))
        self._put(RECOVERY_POINTS, partition, point)
        self._put(LOG_STARTS, partition, log.log_start_offset or None)
        self._put(FIRST_DIRTY_OFFSETS, partition, log.first_dirty_offset or None)
        self._put(HIGH_WATERMARKS, partition, high_watermark)

    def _put(self, name: str, partition: TopicPartition, offset: int | None) -> None:
        lines = self._lines.get(name)
        if lines is not None and offset is not None:
            lines.append(offset_line(partition, offset))

    def run(self, files: Files) -> None:
        """Make the files durable. Blocks; no two jobs of a directory may run at a time."""
        for name, lines in self._lines.items():
            content = format_offsets(lines)
            if name == RECOVERY_POINTS or self._written.get(name) != content:
                self._written.pop(name, None)
                write_file(files, f"{self._directory}/{name}", content, durable=True)
                self._written[name] = content

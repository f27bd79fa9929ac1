"""Reads the transaction indexes of the segments that a round of compaction comes to."""

from collections.abc import Iterator, Sequence

from logfleet.io.files import Files
from logfleet.log.aborted import ABORTED_ENTRY, AbortedEntry


class SourceIndexes:
    """The aborted transactions that have records in the segments of a round.

    A transaction may end long after a segment with its records. So indexes are read ahead, until
    one of them shows that all that began before the segment's end have ended.
    """

    def __init__(self, files: Files, paths: Sequence[str], behind: Sequence[AbortedEntry]) -> None:
        """paths: of the segments' indexes, in order; behind: what later segments have."""
        self._files = files
        self._unread = list(reversed(paths))
        self._behind = list(behind)
        self._stable_end = 0

    def up_to(self, end_offset: int) -> Iterator[AbortedEntry]:
        """Those that have records below `end_offset`, and maybe others; each comes once.

        Raises OSError.
        """
        while self._unread and self._stable_end < end_offset:
            for entry in self._read(self._unread.pop()):
                self._stable_end = max(self._stable_end, entry.last_stable_offset)
                yield entry
        if not self._unread:
            yield from self._behind
            self._behind.clear()

    def _read(self, path: str) -> Iterator[AbortedEntry]:
        try:
            file = self._files.open(path)
        except FileNotFoundError:  # no transaction was aborted there
            return
        count = file.size() // ABORTED_ENTRY.size
        data = file.pread(count * ABORTED_ENTRY.size, 0)
        for _, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(data):
            yield AbortedEntry(producer_id, first, last, stable)

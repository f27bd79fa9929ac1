"""The aborted transactions of a simulated log, by the segment that holds their marker."""

from logfleet.log.aborted import ABORTED_ENTRY, AbortedEntry, Fields, overlapping

SEGMENT = 6
"""Records in a segment: few, so that most transactions reach over several."""


class AbortIndex:
    """What `PartitionLog` asks the indexes of its segments; each says itself whether the next one has to be asked."""

    def __init__(self) -> None:
        self._segments: dict[int, list[Fields]] = {}

    def add(self, entry: AbortedEntry) -> None:
        fields = ABORTED_ENTRY.unpack(entry.pack())
        self._segments.setdefault(entry.last_offset // SEGMENT, []).append(fields)

    def clear(self) -> None:
        self._segments = {}

    def between(self, start: int, end: int) -> list[AbortedEntry]:
        """The aborted transactions with records there, as Fetch reports them."""
        found: list[AbortedEntry] = []
        for number in range(start // SEGMENT, max(self._segments, default=-1) + 1):
            entries, is_all = overlapping(self._segments.get(number, ()), start, end)
            found += entries
            if is_all:
                break
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbortIndex) and self._segments == other._segments

    __hash__ = None  # type: ignore[assignment]

"""Producer ids: the first one that was not given away."""

from typing import Final

from logfleet.metadata.kind import ONLY, Format, Kind, SnapshotRule

PRODUCER_IDS_UP: Final = 1 << 40


def _encode(value: int) -> bytes:
    return str(value).encode()


def _raised(value: int) -> int:
    """The value to restore: no producer id may be given out twice (KIP-98)."""
    return value + PRODUCER_IDS_UP


NEXT_PRODUCER_ID: Final = Kind(
    "pid/next",
    ONLY,
    Format(_encode, int),
    snapshot=SnapshotRule(restored=_raised, otherwise=PRODUCER_IDS_UP),
)
"""Written by any broker, by compare. Not part of an image."""

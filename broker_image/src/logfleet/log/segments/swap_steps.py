"""How a compacted segment replaces its sources so that a crash at any step leaves a valid log.

1. The new segment's files are written as BASE.log.cleaned and so on, and made durable.
2. They are renamed to .swap, the log last, durably: from here on the new segment counts.
3. The old segments' files are renamed out of use.
4. The .swap files get their final names.

After a crash .cleaned files are removed, and a .swap segment is completed: what is left of its
sources is removed, and step 4 done. Source: Kafka's `LocalLog.replaceSegments`, `LogLoader.load`.
"""

from collections.abc import Iterable

import msgspec

from logfleet.log.names import CLEANED, LOG, SNAPSHOT, SWAP, offset_file, parse_offset_file

Rename = tuple[str, str]
"""A rename within one directory: (source name, target name)."""


def promotion(base_offset: int, sidecars: Iterable[str]) -> list[Rename]:
    """The renames of step 2, in order: once the log has this suffix the segment is complete.

    sidecars: their suffixes.
    """
    names = [offset_file(base_offset, suffix) for suffix in (*sidecars, LOG)]
    return [(name + CLEANED, name + SWAP) for name in names]


def completion(base_offset: int, sidecars: Iterable[str]) -> list[Rename]:
    """The renames that give the .swap files their final names (step 4)."""
    names = [offset_file(base_offset, suffix) for suffix in (LOG, *sidecars)]
    return [(name + SWAP, name) for name in names]


class Interrupted(msgspec.Struct, frozen=True):
    """The files of a swap that a crash interrupted.

    remove: file names to remove, in this order; swaps: files to get their final names. segments:
    base offsets of the new segments whose sources may still be there, ascending.
    """

    remove: tuple[str, ...]
    swaps: tuple[str, ...]
    segments: tuple[int, ...]


def find_interrupted(names: Iterable[str]) -> Interrupted:
    """Judge the files in a partition's directory.

    A .swap file whose base is at or above that of a .cleaned one is incomplete: a segment in the
    middle of step 2, or one of several into which Kafka split a segment. It is removed before the
    .cleaned ones that show this: after a crash in between it would count.
    """
    cleaned: dict[str, int] = {}
    swaps: dict[str, int] = {}
    for name in names:
        for suffix, found in ((CLEANED, cleaned), (SWAP, swaps)):
            stem = name.removesuffix(suffix)
            if stem != name and (base_offset := _base_offset(stem)) is not None:
                found[name] = base_offset
    first_cleaned = min(cleaned.values(), default=None)
    incomplete = {
        name for name, base in swaps.items() if first_cleaned is not None and base >= first_cleaned
    }
    valid = {name: base for name, base in swaps.items() if name not in incomplete}
    return Interrupted(
        remove=(*sorted(incomplete), *sorted(cleaned)),
        swaps=tuple(sorted(valid)),
        segments=tuple(sorted(base for name, base in valid.items() if name.endswith(LOG + SWAP))),
    )


def _base_offset(stem: str) -> int | None:
    parsed = parse_offset_file(stem)
    return None if parsed is None else parsed[0]


def replaced_files(names: Iterable[str], first_offset: int, end_offset: int) -> list[str]:
    """Files of the segments with base offsets in [first_offset, end_offset).

    A complete segment replaces them. Producer snapshots at these offsets stay true.
    """
    return [
        name
        for name in names
        if (parsed := parse_offset_file(name)) is not None
        and parsed[1] != SNAPSHOT
        and first_offset <= parsed[0] < end_offset
    ]

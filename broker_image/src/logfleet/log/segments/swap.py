"""Replaces segments by compacted ones, and finishes after a crash what was begun.

See log.segments.swap_steps.
"""

import contextlib
from collections.abc import Sequence

import msgspec

from logfleet.io.files import Files, remove_if_there
from logfleet.log.names import CLEANED, LOG, SWAP, offset_file
from logfleet.log.segments import sidecars
from logfleet.log.segments.segment import Segment
from logfleet.log.segments.swap_steps import (
    Rename,
    completion,
    find_interrupted,
    promotion,
    replaced_files,
)
from logfleet.log.segments.valid_batches import scan_batches
from logfleet.types import FILE_START


class Swap(msgspec.Struct):
    """A running swap.

    replaced: the old segments. is_cleared: their files are out of use (step 3 of `swap_steps`).
    renames: the rest of step 4.
    """

    replaced: Sequence[Segment]
    renames: list[Rename]
    is_cleared: bool = False

    @classmethod
    def of(cls, replaced: Sequence[Segment]) -> "Swap":
        return cls(replaced, completion(replaced[0].base_offset, sidecars.suffixes()))

    def complete(self, files: Files, directory: str) -> None:
        """Give the new segment its final names; after an OSError another call continues."""
        while self.renames:
            _rename(files, directory, self.renames[:1])
            del self.renames[0]


def promote(files: Files, directory: str, base_offset: int, outdated: Sequence[str] = ()) -> None:
    """Make the new segment count from here on, also after a power loss.

    outdated: paths to remove before. Blocks for as long as the disk takes.
    """
    for path in outdated:
        remove_if_there(files, path)
    _rename(files, directory, promotion(base_offset, sidecars.suffixes()))
    files.fsync_directory(directory)


def demote(files: Files, directory: str, base_offset: int) -> None:
    """Undo `promote`, however far it got.

    The new segment does not count, and `remove_cleaned` removes it.
    """
    cleaned, swap = promotion(base_offset, ())[-1]
    with contextlib.suppress(FileNotFoundError):  # promote did not get this far
        _rename(files, directory, [(swap, cleaned)])


def remove_cleaned(files: Files, directory: str) -> None:
    """Remove the files of an unfinished round; files that are already gone are no error."""
    try:
        names = [entry.name for entry in files.list_directory(directory)]
    except FileNotFoundError:
        return
    for name in find_interrupted(names).remove:
        remove_if_there(files, f"{directory}/{name}")


def recover(files: Files, directory: str, names: Sequence[str]) -> list[str]:
    """Finish or undo a swap that a crash interrupted; returns messages for the operator.

    names: of the files in the directory. Afterwards no file there is .cleaned or .swap.
    """
    found = find_interrupted(names)
    for name in found.remove:
        remove_if_there(files, f"{directory}/{name}")
    notes = []
    if found.segments:
        end_offset = max(_end_offset(files, directory, base) for base in found.segments)
        for name in replaced_files(names, found.segments[0], end_offset):
            remove_if_there(files, f"{directory}/{name}")
        notes.append(f"segment {found.segments[0]} takes the place of those it was compacted from")
    _rename(files, directory, [(name, name.removesuffix(SWAP)) for name in found.swaps])
    if found.remove or found.swaps:
        files.fsync_directory(directory)
    return notes


def _end_offset(files: Files, directory: str, base_offset: int) -> int:
    path = f"{directory}/{offset_file(base_offset, LOG)}{SWAP}"
    file = files.open(path)
    end_offset = base_offset
    batches = scan_batches(
        file.pread, FILE_START, file.size(), next_offset=base_offset, verify=False
    )
    for _, header in batches:
        end_offset = header.next_offset
    return end_offset


def _rename(files: Files, directory: str, renames: Sequence[Rename]) -> None:
    optional = tuple(suffix + step for suffix in sidecars.optional() for step in (CLEANED, SWAP))
    for source, target in renames:
        try:
            files.rename(f"{directory}/{source}", f"{directory}/{target}")
        except FileNotFoundError:
            if not source.endswith(optional):
                raise

"""Folders of the machine's own tree that a node mounts its disk over: made where they are missing, removed afterwards."""

from collections.abc import Iterable
from pathlib import Path


def ensure_folders(record: Path, wanted: Iterable[Path]) -> None:
    """The folders exist; those that did not are remembered in the file `record`, parents before children."""
    made = [
        folder
        for path in wanted
        for folder in (*reversed(path.parents), path)
        if not folder.exists()
    ]
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:  # before they are made: a kill in between forgets none
        file.writelines(f"{folder}\n" for folder in made)
    for folder in made:
        folder.mkdir(exist_ok=True)


def remove_folders(record: Path) -> None:
    """Remove what `ensure_folders` made, unless somebody uses it by now."""
    if not record.exists():
        return
    for line in reversed(record.read_text().splitlines()):
        folder = Path(line)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    record.unlink()

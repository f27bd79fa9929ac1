"""Things that are slow to make, made once per recipe: the key is a hash of what they are made from."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEY_CHARS = 12


def recipe_key(*parts: str | bytes | Path) -> str:
    """A short hash of the parts in order; of a path, its content is meant (of a folder, its files')."""
    digest = hashlib.sha256()
    for part in parts:
        for chunk in _content(part):
            digest.update(len(chunk).to_bytes(8, "big"))
            digest.update(chunk)
    return digest.hexdigest()[:KEY_CHARS]


def _content(part: str | bytes | Path) -> Iterable[bytes]:
    if isinstance(part, str):
        yield part.encode()
    elif isinstance(part, bytes):
        yield part
    elif part.is_dir():
        for path in sorted(part.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(part)).encode()
                yield path.read_bytes()
    else:
        yield part.read_bytes()


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Hold the lock of a file to be made; a second maker waits, then finds it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A folder on the same file system as `path`, gone afterwards; what an earlier kill left goes first."""
    scratch = path.with_name(f".{path.name}.tmp")
    _remove(scratch)
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        _remove(scratch)


def _remove(folder: Path) -> None:
    if folder.exists():
        assert not any(os.path.ismount(path) for path in folder.rglob("*") if path.is_dir()), (
            f"{folder} holds a mount"
        )
        shutil.rmtree(folder)

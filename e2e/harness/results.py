"""Committed results: JSON below e2e/results, keyed by a hash of the sources that were measured."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "e2e" / "results"


def source_key(*folders: str, root: Path = ROOT) -> str:
    """Return a hash of the names and contents of the files below `folders`.

    Files that git ignores do not count.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    digest = hashlib.sha256()
    for name in sorted(set(filter(None, listed))):
        path = root / name
        if path.is_file():
            digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def entry_of(path: Path, key: str) -> dict[str, Any]:
    """Return the entry stored under `key`, empty if there is none."""
    entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    entry: dict[str, Any] = entries.get(key, {})
    return entry


def store(path: Path, key: str, entry: dict[str, Any]) -> None:
    """Store `entry` under `key` as the last one in the file.

    An earlier entry of that key is replaced.
    """
    entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    entries.pop(key, None)
    entries[key] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries, indent=1) + "\n")

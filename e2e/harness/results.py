"""Results that are committed: JSON below e2e/results, keyed by the hash of the sources they were measured on."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "e2e" / "results"


def source_key(*folders: str, root: Path = ROOT) -> str:
    """Hash of the names and contents of the files below `folders` that git knows or would add, as they are now."""
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
    """What is stored under `key`, empty if nothing is."""
    entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    entry: dict[str, Any] = entries.get(key, {})
    return entry


def store(path: Path, key: str, entry: dict[str, Any]) -> None:
    """Put `entry` under `key`, the last in the file; what was there under that key is replaced."""
    entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    entries.pop(key, None)
    entries[key] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries, indent=1) + "\n")

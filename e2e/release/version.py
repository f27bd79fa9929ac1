"""`make version V=0.2.0`: writes the version to `logfleet.__version__` and wherever a file repeats it.

The packages read it from there when they are built. Charts, image tags in manifests, scripts and pages cannot, so they
are written; a test finds each that differs.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = "broker_image/src/logfleet/__init__.py"
VERSION: Final = re.compile(r"(\d+\.\d+\.\d+)(?:(a|b|rc)(\d+))?")
"""A release or a pre-release as Python packages name it (PEP 440), such as 0.2.0 or 0.2.0rc1."""
SOURCE_LINE: Final = re.compile(r'(?m)^(__version__ = ")([^"]+)(")$')
CHART_LINE: Final = re.compile(r"(?m)^(version: )(\S+)()$")
APP_LINE: Final = re.compile(r"(?m)^(appVersion: )(\S+)()$")
TAG: Final = re.compile(
    r"(\blogfleet/(?:broker|operator|spark|test|\$part):)(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)()(?![\w.-])"
)
"""An image with its tag; `$part` stands for the images' names in a loop of the shell."""
HISTORY: Final = ("CHANGELOG.md", "docs/history/")


def chart_version(version: str) -> str:
    """The version as Helm wants it (SemVer): 0.2.0-rc1 for 0.2.0rc1."""
    found = VERSION.fullmatch(version)
    assert found is not None, version
    release, kind, number = found.groups()
    return release if kind is None else f"{release}-{kind}{number}"


def repeats(path: str, text: str, version: str) -> list[tuple[re.Pattern[str], str]]:
    """Where a file repeats the version: patterns with what their second group must be."""
    if path == SOURCE:
        return [(SOURCE_LINE, version)]
    if path.endswith("/Chart.yaml"):
        return [(CHART_LINE, chart_version(version)), (APP_LINE, version)]
    # tests use tags of versions that never were; the history names those that were
    if "/tests/" in path or path.startswith(HISTORY) or not TAG.search(text):
        return []
    return [(TAG, version)]


def written(path: str, text: str, version: str) -> str:
    """The file's text with this version."""
    for pattern, wanted in repeats(path, text, version):
        text = pattern.sub(rf"\g<1>{wanted}\g<3>", text)
    return text


def differing(path: str, text: str, version: str) -> list[str]:
    """Texts that ought to be this version and are not."""
    return [
        found[0]
        for pattern, wanted in repeats(path, text, version)
        for found in pattern.finditer(text)
        if found[2] != wanted
    ]


def texts() -> dict[str, str]:
    """All files of the tree that are text, by their path from the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    found = {}
    for path in filter(None, listed):
        try:
            found[path] = (ROOT / path).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture; or removed and not yet committed
    return found


def main(version: str) -> int:
    """Write the version; print the files that changed. Returns the exit code."""
    if not VERSION.fullmatch(version):
        print(f"{version!r} is no version: 0.2.0 and 0.2.0rc1 are", file=sys.stderr)
        return 2
    for path, text in texts().items():
        changed = written(path, text, version)
        if changed != text:
            (ROOT / path).write_text(changed)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))

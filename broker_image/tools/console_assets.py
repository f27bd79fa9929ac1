"""Fetch the console's browser libraries from npm: `python broker_image/tools/console_assets.py`.

`console/static/assets.lock` names package, version, licence and the archive's hash; the files are
committed beside it, so that nobody needs npm to install or to use the console.
`fetch` also serves the tests, which need axe-core and do not commit it.
"""

import base64
import hashlib
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

STATIC: Final = Path(__file__).parents[1] / "src" / "logfleet" / "console" / "static"
LOCK: Final = STATIC / "assets.lock"


def sha512(content: bytes) -> str:
    """The hash as npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def packages() -> list[dict[str, Any]]:
    """The packages of the lock."""
    found: list[dict[str, Any]] = tomllib.loads(LOCK.read_text())["package"]
    return found


def fetch(package: dict[str, Any], into: Path) -> None:
    """Put the files of a package into the folder, by the names that the lock gives them.

    Raises CalledProcessError if npm cannot get it, ValueError if it is another archive than the
    lock's.
    """
    wanted = f"{package['name']}@{package['version']}"
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["npm", "pack", "--silent", wanted], cwd=scratch, check=True, timeout=300)
        (archive,) = Path(scratch).glob("*.tgz")
        if sha512(archive.read_bytes()) != package["archive"]:
            raise ValueError(f"{wanted}: not the archive of the lock")
        into.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as members:
            for name, file in package["files"].items():
                content = members.extractfile(f"package/{file['from']}")
                assert content is not None, f"{wanted} has no file {file['from']}"
                (into / name).write_bytes(content.read())


if __name__ == "__main__":
    for each in packages():
        if not each.get("only_for_tests"):
            fetch(each, STATIC / "vendor")
            print(each["name"], each["version"])

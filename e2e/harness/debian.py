"""Debian's packages that a rig or a client under test needs: installed when root, named in one line otherwise."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

LOCK_S_MAX = 60


class PackagesMissing(RuntimeError):
    """Not root, or no apt-get; the text says what to install."""


def install(*packages: str) -> None:
    """Install packages, and what they depend on. Raises PackagesMissing, or CalledProcessError if apt-get fails."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PackagesMissing(f"as root, first: apt-get install -y {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wait = f"DPkg::Lock::Timeout={LOCK_S_MAX}"
    with Path(tempfile.gettempdir(), "logfleet-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side, apt-get does not
        for arguments in (
            ["update", "-q"],
            ["install", "-yq", "--no-install-recommends", "-o", wait],
        ):
            names = packages if arguments[0] == "install" else ()
            subprocess.run(
                ["apt-get", *arguments, *names],
                check=True,
                env=environment,
                stdout=subprocess.DEVNULL,
            )

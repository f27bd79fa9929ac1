"""Installs Debian packages that a rig or a client needs, if the user is root.

Otherwise one line names them.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

LOCK_S_MAX = 60


class PackagesMissing(RuntimeError):
    """The user is not root, or there is no apt-get; the text says what to install."""


def install(*packages: str) -> None:
    """Install packages and their dependencies.

    Raises PackagesMissing, or CalledProcessError if apt-get fails.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PackagesMissing(f"as root, first: apt-get install -y {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wait = f"DPkg::Lock::Timeout={LOCK_S_MAX}"
    with Path(tempfile.gettempdir(), "logfleet-apt.lock").open("w") as lock:
        # tests run at the same time, but two apt-get processes cannot
        fcntl.flock(lock, fcntl.LOCK_EX)
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

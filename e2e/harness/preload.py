"""Libraries of a few lines of C that stand before the system's in a process (LD_PRELOAD), to make its disk slow or bad."""

import shutil
import subprocess
from pathlib import Path

from e2e.harness.debian import install


def compiled(source: Path, directory: Path) -> Path:
    """The library made of that source, below `directory`. Raises PackagesMissing, or CalledProcessError if it cannot be compiled."""
    if shutil.which("gcc") is None or not Path("/usr/include/stdio.h").exists():
        install("gcc", "libc6-dev")
    library = directory / source.with_suffix(".so").name
    command = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library

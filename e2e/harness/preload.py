"""C libraries that replace system calls in a process (LD_PRELOAD): a slow or faulty disk."""

import shutil
import subprocess
from pathlib import Path

from e2e.harness.debian import install


def compiled(source: Path, directory: Path) -> Path:
    """Compile the source to a library below `directory`; return its path.

    Raises PackagesMissing, or CalledProcessError if the compiler fails.
    """
    if shutil.which("gcc") is None or not Path("/usr/include/stdio.h").exists():
        install("gcc", "libc6-dev")
    library = directory / source.with_suffix(".so").name
    command = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library

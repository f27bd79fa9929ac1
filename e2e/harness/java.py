"""Finds this machine's Java as Spark and Kafka do, or says why it does not suffice."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path


class JavaMissing(RuntimeError):
    """There is no suitable Java; the text is one sentence that says what to install."""


def find_java(*, at_least: int, wanted_by: str) -> str:
    """Return the path of `java`: JAVA_HOME's if that is set, else the one in PATH.

    Raises JavaMissing.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    wanted = f"{wanted_by} needs Java {at_least} or newer"
    if java is None and home:
        raise JavaMissing(
            f"{wanted} and JAVA_HOME names {home}, which has none; unset it, or {_hint()}"
        )
    if java is None:
        raise JavaMissing(f"{wanted} and this machine has none; {_hint()}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) < at_least:
        named = found.group(1) if found else "one that does not say its version"
        raise JavaMissing(f"{wanted} and {java} is {named}; {_hint()}")
    return java


def _hint() -> str:
    """Name the newest Java package of this distribution that Spark supports.

    Debian has 21 since release 13.
    """
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    old = release.get("ID") == "debian" and release.get("VERSION_ID", "") in {"11", "12"}
    return f"install it with: sudo apt-get install openjdk-{17 if old else 21}-jre-headless"

"""The Java of this machine, found as Spark and Kafka find it, and one sentence where it will not do."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path


class JavaMissing(RuntimeError):
    """There is no Java that will do; the text is one sentence that says what to install."""


def find_java(*, at_least: int, wanted_by: str) -> str:
    """Path of the `java` to run: JAVA_HOME's if that is set, else the one in PATH. Raises JavaMissing."""
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
    """The newest that the distribution of this machine has and that Spark takes: Debian has 21 since its release 13."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    old = release.get("ID") == "debian" and release.get("VERSION_ID", "") in {"11", "12"}
    return f"install it with: sudo apt-get install openjdk-{17 if old else 21}-jre-headless"

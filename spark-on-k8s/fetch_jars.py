# ruff: noqa: INP001  (a script of its own, copied alone into a build)
"""Fetches the jars that a lock file names, by hash.

A jar that is there already with the right hash is not fetched again. The lock holds lines of `sha256  path`, the path as in a
Maven repository. The environment variable MAVEN_REPOSITORY names another one than Maven Central.
"""

import hashlib
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

CENTRAL = "https://repo.maven.apache.org/maven2"
ATTEMPTS = 5
TIMEOUT_S = 60


def locked(text: str) -> list[tuple[str, str]]:
    """(sha256, path) of each line that is no comment."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(sha256, path) for sha256, path in (line.split() for line in lines)]


class JarUnavailable(Exception):
    """A jar could not be fetched; the text names its URL and why."""


def fetch(url: str) -> bytes:
    """The content behind a URL. Raises JarUnavailable when it is not there or five attempts have failed."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310  (the repository is the builder's choice)
                content: bytes = answer.read()
                return content
        except OSError as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or attempt == ATTEMPTS:
                raise JarUnavailable(f"{url}: {error}") from error
        time.sleep(attempt)
    raise AssertionError


def fetched(lock: Path, folder: Path) -> list[Path]:
    """The jars of the lock, each in the folder afterwards. Raises JarUnavailable; exits with a sentence if a hash differs."""
    repository = os.environ.get("MAVEN_REPOSITORY", CENTRAL).rstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    jars = []
    for sha256, path in locked(lock.read_text()):
        jar = folder / Path(path).name
        jars.append(jar)
        if jar.exists() and hashlib.sha256(jar.read_bytes()).hexdigest() == sha256:
            continue
        content = fetch(f"{repository}/{path}")
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            sys.exit(f"{path} has the hash {found}, not {sha256} as {lock.name} says")
        fresh = folder / f"{jar.name}.{os.getpid()}.part"  # others may fetch it at the same time
        fresh.write_bytes(content)
        fresh.replace(jar)
    return jars

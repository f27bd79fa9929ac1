# ruff: noqa: INP001  (a script of its own, copied alone into a build)
"""Fetches the jars that a lock file names, and checks their hashes.

A jar that is already there with the right hash is not fetched again. Each line of the lock is
`sha256  path`, with the path in a Maven repository. The environment variable MAVEN_REPOSITORY
replaces Maven Central.
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
    """Return (sha256, path) of each line that is not a comment."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(sha256, path) for sha256, path in (line.split() for line in lines)]


class JarUnavailable(Exception):
    """A jar could not be fetched; the text has its URL and the reason."""


def fetch(url: str) -> bytes:
    """Return the content of a URL.

    Raises JarUnavailable if it does not exist or five attempts fail.
    """
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
    """Fetch the jars of the lock into the folder, and return their paths.

    Raises JarUnavailable. Exits with a sentence if a hash differs.
    """
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
        # other processes may fetch the same jar at the same time
        fresh = folder / f"{jar.name}.{os.getpid()}.part"
        fresh.write_bytes(content)
        fresh.replace(jar)
    return jars

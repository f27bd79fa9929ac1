"""A PostgreSQL from Debian's packages for one test run, on loopback.

Its programs refuse to run as root, so a test run by root starts them as the user `postgres`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.harness.debian import install
from e2e.harness.program import Program, children_of

SUPERUSER = "tests"
"""A role that needs no password."""
GUARDED = "guarded"
"""A role that the tests may create; it needs a password."""
OF_ROOT = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


def programs() -> Path:
    """Return the folder of initdb and postgres, of the newest version.

    If there is none and the user is root, the package is installed.
    """
    for _ in range(2):
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if found:
            return found[-1].parent
        install("postgresql")
    raise FileNotFoundError("/usr/lib/postgresql/*/bin/initdb")


class Postgres(Program):
    """A server with its data in a folder that the user `postgres` can reach."""

    def __init__(self, directory: Path) -> None:
        self._bin = programs()
        self._data = directory / "data"
        super().__init__(
            "postgres", [str(self._bin / "postgres"), "-D", str(self._data)], directory
        )
        self.port = self.ports.reserve()
        self.command += ["-h", "127.0.0.1", "-p", str(self.port), "-k", "", "-F"]
        self.url = f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/postgres"
        if os.geteuid() == 0:
            self.prefix = list(OF_ROOT)

    def make(self) -> None:
        """Create an empty database cluster."""
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres")
        initdb = [str(self._bin / "initdb"), "-D", str(self._data), "-U", SUPERUSER]
        command = [*self.prefix, *initdb, "-A", "trust", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd="/")
        rules = self._data / "pg_hba.conf"  # PostgreSQL uses the first line that matches
        guarded = f"host all {GUARDED} 127.0.0.1/32 scram-sha-256\n"
        rules.write_text(guarded + rules.read_text())

    def kill(self) -> None:
        """Send SIGKILL to all its processes, as if its machine was lost."""
        children = children_of(self.pid) if self.running else []
        super().kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start(self) -> None:
        """Start it and wait until it is ready; after `kill` it has the same port and data."""
        self.launch()
        self.wait_until(self.is_ready)

    def is_ready(self) -> bool:
        asking = [str(self._bin / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asking, check=False, capture_output=True).returncode == 0

    def execute(self, statement: str) -> list[list[str]]:
        """Return the rows of a statement, as text.

        Raises CalledProcessError if the server refuses it.
        """
        psql = [str(self._bin / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", SUPERUSER]
        done = subprocess.run(
            [*psql, "-v", "ON_ERROR_STOP=1", "-AtF", "|", "-c", statement, "postgres"],
            check=True,
            capture_output=True,
            text=True,
        )
        return [line.split("|") for line in done.stdout.splitlines()]


@contextmanager
def running(directory: Path) -> Iterator[Postgres]:
    """A new server. directory: an empty one that other users can reach."""
    server = Postgres(directory)
    server.make()
    try:
        server.start()
        yield server
    finally:
        server.close()

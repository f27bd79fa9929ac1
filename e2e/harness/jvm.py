"""A Java virtual machine whose classes the tests call from Python.

py4j comes with PySpark; the jars are those of `e2e.harness.kafka.classpath`.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path

from e2e.harness.kafka import QUICK, classpath, java

END_S = 20.0


class Jvm:
    """Runs until the block or the test process ends.

    part: names the jars, as for `classpath`. log: a file for its standard error. classes: the root
    of all packages, as in `jvm.classes.java.util.Properties()`. A Java exception is raised as
    Py4JJavaError.
    """

    def __init__(self, part: str, log: Path | None = None, flags: Sequence[str] = ()) -> None:
        self._command = [java(), "-Xmx256m", *QUICK, *flags]
        self._command += ["-cp", f"{find_jar_path()}:{classpath(part)}", "py4j.GatewayServer"]
        # --die-on-broken-pipe: the JVM ends when its standard input closes, even if the tests are killed
        self._command += ["--die-on-broken-pipe", "--enable-auth", "0"]
        self._log = log

    def __enter__(self) -> Self:
        with (self._log or Path("/dev/null")).open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        token = self._process.stdout.readline().strip()
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token)
        )
        self.classes: Any = self._gateway.jvm
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gateway.shutdown()
        self._process.communicate(timeout=END_S)

    def kill(self) -> None:
        """SIGKILL; returns once it has ended. Nothing can be called after that."""
        self._process.kill()
        self._process.wait()

    def properties(self, values: Mapping[str, str]) -> Any:
        """Return a java.util.Properties with these values."""
        made = self.classes.java.util.Properties()
        for key, value in values.items():
            made.setProperty(key, value)
        return made

"""Apache Kafka from Maven Central: the oracle for behaviour, and its console tools as clients.

The broker is 4.4.0. The tools are 4.3.1, the newest on Maven Central for the Kafka release that we
follow. Jars are kept outside the tree, in a folder per version of the pom that names them.
"""

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from logfleet.node.tools.loopback_ports import LoopbackPorts

from e2e.harness.debian import PackagesMissing, install
from e2e.harness.java import JavaMissing, find_java

HERE = Path(__file__).resolve().parents[1] / "kafka"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logfleet" / "kafka"
COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LOGGING = f"-Dlog4j2.configurationFile=file:{HERE}/conf/log4j2.properties"
"""The class path has no directory for it: Java uses no archive of classes where there is one."""
READY_SECONDS = 300
"""Kafka needs 5 to 10 s; a cold JVM among twenty busy processes has needed more than 90."""
TOOL_SECONDS = 180
"""A tool needs 2 to 5 s on an idle machine; the same cold JVM has needed more than 60."""
STOP_SECONDS = 120
"""Kafka needs 1 to 3 s to stop in order on an idle machine."""


class KafkaUnavailable(RuntimeError):
    """Java or Maven is missing; the text says what to install."""


def classpath(part: str) -> str:
    """Return the class path of "broker", "tools" or "apps" (each has a pom in e2e/kafka).

    The jars are fetched on first use.
    """
    pom = HERE / f"{part}.xml"
    libs = CACHE / f"{part}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not libs.exists():
        _fetch(pom, libs)
    return f"{libs}/*"


def archive(part: str) -> Path:
    """Where `make jars` keeps the classes of "broker" or "tools" as Java has verified them."""
    return Path(classpath(part).removesuffix("/*") + ".jsa")


def shared_classes(part: str) -> list[str]:
    """Flags that start Java with half the work, if this Java has written the archive."""
    return [f"-XX:SharedArchiveFile={archive(part)}", "-Xshare:auto", "-Xlog:cds*=off"]


def _fetch(pom: Path, libs: Path) -> None:
    if shutil.which("mvn") is None:
        try:
            install("maven")
        except PackagesMissing as missing:
            raise KafkaUnavailable(str(missing)) from None
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers run at the same time, so only one may fetch
        if libs.exists():
            return
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            project = Path(scratch) / "pom.xml"
            shutil.copy(pom, project)
            out = Path(scratch) / "libs"
            command = ["mvn", "-q", "-B", "-f", str(project), COPY_PLUGIN]
            subprocess.run([*command, f"-DoutputDirectory={out}"], check=True)
            out.rename(libs)


def java() -> str:
    """The Java to run with. Raises KafkaUnavailable."""
    try:
        return find_java(at_least=17, wanted_by="Kafka")
    except JavaMissing as missing:
        raise KafkaUnavailable(str(missing)) from None


def run_tool(
    main: str,
    arguments: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_seconds: float = TOOL_SECONDS,
) -> str:
    """Run one of Kafka's tools by its class; return its standard output.

    main: such as org.apache.kafka.tools.DumpLogSegments. Raises AssertionError with both outputs if
    it fails, as that is a finding.
    """
    done = try_tool(main, arguments, stdin=stdin, timeout_seconds=timeout_seconds)
    said = f"{main} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, f"exit status {done.returncode}: {said}"
    return done.stdout


def try_tool(
    main: str,
    arguments: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_seconds: float = TOOL_SECONDS,
) -> "subprocess.CompletedProcess[str]":
    """As `run_tool`, for a tool that may fail."""
    return subprocess.run(
        tool_command(main, arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


def dump_log(files: Sequence[Path], *flags: str) -> str:
    """Return the output of Kafka's dump tool for segments, indexes or snapshots.

    Raises AssertionError if the tool reports an error in any of them.
    """
    listed = ",".join(str(file) for file in files)
    output = run_tool("org.apache.kafka.tools.DumpLogSegments", ["--files", listed, *flags])
    for complaint in (
        "Mismatches in",
        "corrupt",
        "Corrupt",
        "Index timestamp mismatch",
        "Found timestamp",
    ):
        assert complaint not in output, output[-3000:]
    return output


def tool_command(main: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs one of Kafka's tools."""
    flags = ["-Xmx256m", *QUICK, *shared_classes("tools")]
    return [java(), *flags, LOGGING, "-cp", classpath("tools"), main, *arguments]


class KafkaBroker:
    """One Apache Kafka 4.4.0 node (KRaft, broker and controller in one) on loopback.

    It runs at most until the block ends, and keeps its ports and data over `stop` and `start`.
    ports: reserved until `close`, even while it does not run; Java can listen on a reserved port,
    as it sets SO_REUSEADDR on Linux (sun.nio.ch.Net.serverSocket). jvm: flags of the JVM, set
    before `format`. The default flags favour a fast start over optimised code, as tests run for a
    minute.
    """

    def __init__(self, directory: Path, **config: str) -> None:
        self.directory = directory
        self.jvm = ["-Xms256m", "-Xmx1g", *QUICK, *shared_classes("broker")]
        self.ports = LoopbackPorts()
        self.port, self.controller_port = self.ports.reserve(), self.ports.reserve()
        controller = self.controller_port
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.config = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.format()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def format(self) -> None:
        """Write its configuration and format its directory, before the first start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self.config.items()))
        self._java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self.close()

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        self._log = (self.directory / "kafka.log").open("ab")
        command = self.command()
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        end = time.monotonic() + READY_SECONDS
        while True:
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise AssertionError(f"Apache Kafka did not start:\n{self._tail()}")
            with socket.socket() as probe:
                probe.settimeout(0.2)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop in order. Raises AssertionError (and kills it) if that takes longer than STOP_SECONDS."""
        try:
            if self.process is not None:
                self.process.terminate()
                self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"Apache Kafka did not stop in {STOP_SECONDS} s:\n{self._tail()}"
            ) from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait until it has ended. Does nothing if it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def close(self) -> None:
        """Kill it if it runs, and release its ports."""
        self.kill()
        self.ports.release()

    def _tail(self) -> str:
        return (self.directory / "kafka.log").read_text(errors="replace")[-3000:]

    def command(self) -> list[str]:
        """Return the command that runs the broker after `format`."""
        return self._command("kafka.Kafka")

    def _command(self, main: str, *arguments: str) -> list[str]:
        flags = [*self.jvm, LOGGING, f"-Dkafka.logs.dir={self.directory}"]
        return [
            java(),
            *flags,
            "-cp",
            classpath("broker"),
            main,
            *arguments,
            str(self.directory / "server.properties"),
        ]

    def _java(self, main: str, *arguments: str) -> None:
        done = subprocess.run(self._command(main, *arguments), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()


def kafka_quorum(
    directory: Path, racks: Sequence[str], *, controllers: int, **config: str
) -> list[KafkaBroker]:
    """Return nodes 1 to N of one cluster, a node per rack, which are not formatted yet.

    controllers: how many of them, from the first on, are controllers as well.
    """
    nodes = [
        KafkaBroker(directory / f"kafka-{number}", **config) for number in range(1, len(racks) + 1)
    ]
    voters = ",".join(
        f"{number}@127.0.0.1:{node.controller_port}"
        for number, node in enumerate(nodes[:controllers], 1)
    )
    for number, (node, rack) in enumerate(zip(nodes, racks, strict=True), 1):
        node.config |= {
            "node.id": str(number),
            "broker.rack": rack,
            "controller.quorum.voters": voters,
        }
        if number > controllers:
            node.config |= {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://{node.bootstrap}",
            }
    return nodes

"""The command line run as a user runs it, and Kafka clients that check its output."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

PATIENCE_S = 60.0
POLL_S = 0.01


class Reachable(Protocol):
    """A broker of ours, or Apache Kafka."""

    @property
    def bootstrap(self) -> str: ...


def environment(broker: Reachable) -> dict[str, str]:
    return {**os.environ, "LOGFLEET_BOOTSTRAP_SERVER": broker.bootstrap}


def logfleet(
    broker: Reachable, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run the program, with the broker's address in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "logfleet", *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        env=environment(broker),
        check=False,
    )


def said(broker: Reachable, *arguments: str, stdin: bytes = b"") -> str:
    """Run the program; return its stdout. It must succeed without output on stderr."""
    done = logfleet(broker, *arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout.decode()


def planned(broker: Reachable, *arguments: str) -> str:
    """Run the program without --execute; return its stdout, the changes that it would make.

    It must say on stderr that nothing was changed.
    """
    done = logfleet(broker, *arguments)
    assert done.returncode == 0, done
    assert done.stderr == b"Nothing was changed; --execute does it.\n", done
    return done.stdout.decode()


def refused(broker: Reachable, *arguments: str, stdin: bytes = b"", code: int = 1) -> str:
    """Run the program, which must fail; return the one line of its stderr."""
    done = logfleet(broker, *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (code, b""), done
    (line,) = done.stderr.decode().splitlines()
    return line


class Running:
    """The running program, with pipes to all its streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process, self.stdin = process, process.stdin
        self.stdout, self.stderr = process.stdout, process.stderr

    def give(self, data: bytes) -> None:
        """Write to its standard input and flush."""
        self.stdin.write(data)
        self.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Wait until it ends by itself; return its exit code and stderr."""
        code = self.process.wait(PATIENCE_S)
        return code, self.stderr.read().decode().strip()

    def interrupted(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """As `end`, after sending Ctrl-C or another signal."""
        self.process.send_signal(number)
        return self.end()


@contextmanager
def started(broker: Reachable, *arguments: str) -> Iterator[Running]:
    """The running program; it is killed at the end of the block if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "logfleet", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(broker),
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def until(ready: Callable[[], bool]) -> None:
    """Wait until `ready()` is true; the test fails if that takes too long."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < give_up_at, "the condition does not come true"
        time.sleep(POLL_S)


def partitions_of(broker: Reachable, topic: str) -> int:
    """Return the number of partitions that librdkafka reports; 0 if there is no such topic."""
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)
    return len(metadata.topics[topic].partitions) if topic in metadata.topics else 0


def config_of(broker: Reachable, topic: str) -> dict[str, str]:
    """Return the keys that are set on the topic itself, as librdkafka reports them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (described,) = admin.describe_configs([resource]).values()
    entries = described.result(PATIENCE_S).values()
    return {each.name: each.value for each in entries if each.source == 1}

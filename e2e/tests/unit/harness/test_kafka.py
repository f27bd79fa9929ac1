"""What keeps a KafkaBroker, with another program in Kafka's place."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from logfleet.node.tools.loopback_ports import LoopbackPorts

from e2e.harness import kafka
from e2e.harness.kafka import KafkaBroker

LISTENS = """
import signal, socket, sys
signal.signal(signal.SIGTERM, getattr(signal, sys.argv[2]))
print("the last words", flush=True)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    signal.pause()
"""


class Stub(KafkaBroker):
    """at_sigterm: SIG_DFL or SIG_IGN."""

    at_sigterm = signal.SIG_DFL

    def command(self) -> list[str]:
        return [sys.executable, "-c", LISTENS, str(self.port), self.at_sigterm.name]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Stub]:
    made = Stub(tmp_path)
    yield made
    made.close()


def test_nobody_else_gets_a_port_while_the_broker_is_stopped(broker: Stub) -> None:
    with LoopbackPorts() as others:
        for _ in range(2):
            broker.start()
            broker.stop()
            with pytest.raises(OSError, match="in use"):
                others.reserve(broker.port)
        broker.close()
        assert others.reserve(broker.port) == broker.port


def test_a_broker_that_does_not_stop_is_killed_and_told_of(
    broker: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "STOP_SECONDS", 0.05)
    broker.at_sigterm = signal.SIG_IGN
    broker.start()
    process = broker.process
    assert process is not None
    with pytest.raises(AssertionError, match=r"(?s)did not stop in 0\.05 s.*the last words"):
        broker.stop()
    assert process.returncode == -signal.SIGKILL
    broker.at_sigterm = signal.SIG_DFL
    broker.start()
    broker.stop()

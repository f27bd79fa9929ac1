import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from e2e.harness.processes import Broker, Rig

READY = "import signal; print('ready', flush=True); signal.pause()"


PAGE = """\
# HELP connections Those that are open
connections{listener="a"} 2
connections{listener="b"} 3
connections_refused_total 7
size{topic="t",partition="0"} 1e3
size{topic="t",partition="1"} 24
size{topic="t2",partition="0"} 5
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Broker]:
    """What says that it is a broker, and serves one page."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            """Not among what pytest says."""

    broker = Broker(tmp_path)
    with HTTPServer(("127.0.0.1", broker.admin_port), Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield broker
        server.shutdown()
        thread.join()
    broker.close()


@pytest.mark.parametrize(
    "name, value",
    [
        ("connections", 5),
        ("connections_refused_total", 7),
        ('connections{listener="b"}', 3),
        ('size{topic="t"', 1024),
        ("size", 1029),
    ],
)
def test_a_metric_is_the_sum_of_its_rows(served: Broker, name: str, value: float) -> None:
    assert served.metric(name) == value


@pytest.mark.parametrize("name", ["refused_total", "HELP", 'size{topic="none"'])
def test_a_metric_that_is_not_there_is_not_zero(served: Broker, name: str) -> None:
    with pytest.raises(AssertionError, match="has no metric"):
        served.metric(name)


def test_a_broker_that_does_not_answer_has_no_metrics(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with pytest.raises(AssertionError, match="status 0"):
        broker.metric("connections")
    broker.close()


def test_the_rig_ends_everything_and_keeps_the_logs(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    program = rig.program("program", [sys.executable, "-c", READY])
    program.launch()
    program.wait_until(lambda: "ready\n" in program.said())
    unstarted = rig.program("other", ["none"])
    rig.close()
    assert not program.running
    assert dict(rig.logs()) == {"program": "ready", "other": "(it was never started)"}
    assert not unstarted.running

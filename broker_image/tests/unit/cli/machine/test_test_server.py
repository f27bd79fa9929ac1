"""`logfleet test-server` ends with what it started, and listens on loopback only."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner
from logfleet.cli.machine.test_server import test_server as command


@pytest.mark.parametrize(
    "control,reason",
    [("0.0.0.0:9700", "is not loopback"), ("x", "'x' is no port"), ("70000", "is no port")],
)
def test_another_address_is_refused(control: str, reason: str) -> None:
    result = CliRunner().invoke(command, ["--control", control])
    assert result.exit_code == 2
    assert reason in result.output


@pytest.mark.parametrize("end", ["signal", "end of input"])
def test_its_brokers_end_with_it(end: str) -> None:
    program = [sys.executable, "-m", "logfleet", "test-server", "--control", "127.0.0.1:0"]
    program += ["--until-eof"] if end == "end of input" else []
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        request = urllib.request.Request(f"{url}/clusters", b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=100) as answer:
            (broker,) = json.load(answer)["brokers"]
        os.kill(broker["pid"], 0)
        if end == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(60) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(broker["pid"], 0)

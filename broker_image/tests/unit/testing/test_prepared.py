"""The prepared process: what it forks ends with it, and it ends with the test process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from logfleet.testing import Broker, OrderFailed
from logfleet.testing.prepared import Prepared, shared

from broker_image.tests.unit.testing.processes import ended

FORKING = """
import json, os, signal, sys
from logfleet.testing import Broker

with Broker() as broker:
    fork = os.fork()
    if not fork:
        signal.pause()
    print(json.dumps({"ours": [broker.pid, broker._prepared.pid], "fork": fork}), flush=True)
    signal.pause()
"""


def test_brokers_end_with_the_prepared_process_and_the_next_has_a_new_one() -> None:
    with Broker() as broker:
        os.kill(shared().pid, signal.SIGKILL)
        assert ended([broker.pid])
        with pytest.raises(OrderFailed):
            broker.events()
        with Broker() as other:
            assert other.events()


def test_a_fork_of_the_test_process_does_not_keep_brokers_running() -> None:
    """It has the channel open; but the prepared process has lost its parent."""
    program = subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE)
    with program:
        assert program.stdout is not None
        seen = json.loads(program.stdout.readline())
        program.kill()
        try:
            assert ended(seen["ours"])
        finally:
            os.kill(seen["fork"], signal.SIGKILL)


def test_a_program_ends_with_the_prepared_process_and_its_directory_is_removed(
    tmp_path: Path,
) -> None:
    prepared = Prepared()
    directory = tmp_path / "directory"
    directory.mkdir()
    log = str(tmp_path / "log")
    pid = prepared.order("run", command=["sleep", "1000"], log=log, directory=str(directory))
    prepared.close()
    assert ended([pid])
    assert not directory.exists()

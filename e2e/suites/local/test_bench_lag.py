"""The disk that stalls of `make bench-lag`: without it that phase would measure an ordinary disk."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from e2e.bench.lag.__main__ import STALL
from e2e.harness.preload import compiled

STALLED_S = 0.2
PROGRAM = """
import json, os, time

def fastest(call):
    took_s = []
    for _ in range(3):
        start_s = time.monotonic()
        call(file)
        took_s.append(time.monotonic() - start_s)
    return min(took_s)

file = os.memfd_create("in memory")
write = lambda file: os.pwrite(file, b"data", 0)
print(json.dumps([fastest(call) for call in (os.fsync, os.fdatasync, write)]))
"""


@pytest.mark.parametrize("stalls", [(), ("LOGFLEET_STALL",), ("LOGFLEET_STALL_WRITES",)])
def test_syncs_or_writes_take_longer_while_their_file_is_there(
    tmp_path: Path, stalls: tuple[str, ...]
):
    switches = {name: tmp_path / name for name in ("LOGFLEET_STALL", "LOGFLEET_STALL_WRITES")}
    for name in stalls:
        switches[name].write_text("200")
    given = {"LD_PRELOAD": str(compiled(STALL, tmp_path))}
    given |= {name: str(path) for name, path in switches.items()}
    command = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **given})
    took_s = msgspec.json.decode(said.stdout, type=list[float])
    syncs, writes = "LOGFLEET_STALL" in stalls, "LOGFLEET_STALL_WRITES" in stalls
    assert [each >= STALLED_S for each in took_s] == [syncs, syncs, writes], took_s

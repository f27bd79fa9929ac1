"""The disk that stalls of `make bench-lag`: without it that phase would measure an ordinary disk."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from e2e.loop_lag.__main__ import stall_library

STALLED_S = 0.2
PROGRAM = """
import json, os, sys, time

def fastest(call):
    took_s = []
    for _ in range(3):
        start_s = time.monotonic()
        call(file)
        took_s.append(time.monotonic() - start_s)
    return min(took_s)

file = os.memfd_create("in memory")
print(json.dumps([fastest(call) for call in (os.fsync, os.fdatasync)]))
"""


@pytest.mark.parametrize("stalls", [False, True])
def test_syncs_take_longer_while_the_file_is_there(tmp_path: Path, *, stalls: bool):
    switch = tmp_path / "stall"
    if stalls:
        switch.touch()
    given = {"LD_PRELOAD": str(stall_library(tmp_path)), "LOGFLEET_STALL": str(switch)}
    command = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **given})
    took_s = msgspec.json.decode(said.stdout, type=list[float])
    assert len(took_s) == 2
    assert all((each >= STALLED_S) == stalls for each in took_s), took_s

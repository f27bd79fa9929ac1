import os
import shutil
import subprocess
import sys

import pytest
from logfleet.io import clock

SUSPENDED_S = 1000


def test_the_clock_of_leases_counts_the_time_for_which_the_machine_was_suspended() -> None:
    """In a time namespace whose CLOCK_BOOTTIME is ahead, as after a suspend."""
    program = (
        "import time; from logfleet.io.clock import boot_s; print(boot_s() - time.monotonic())"
    )
    unshare = ["unshare", "--user", "--map-root-user", "--fork", "--time"]
    suspended = [*unshare, "--boottime", str(SUSPENDED_S)]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*suspended, "true"], check=False).returncode
    ):
        reason = "this machine gives us no time namespace"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    found = subprocess.run(
        [*suspended, sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert float(found.stdout) == pytest.approx(SUSPENDED_S, abs=5)


def test_only_the_wall_clock_is_advanced() -> None:
    before_ms, before_s = clock.now_ms(), clock.monotonic_ms()
    clock.advance_wall_clock(3_600_000)
    try:
        assert 3_600_000 <= clock.now_ms() - before_ms < 3_660_000
        assert clock.SYSTEM_CLOCK.now_ms() - before_ms >= 3_600_000
        assert clock.monotonic_ms() - before_s < 60_000
    finally:
        clock.advance_wall_clock(-3_600_000)
    assert clock.now_ms() - before_ms < 60_000

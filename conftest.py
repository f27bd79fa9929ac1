"""Settings of all tests, whichever folder of them is run."""

import faulthandler
import os

import hypothesis
import pytest
from pytest_timeout import Settings

# Wall time on a busy machine says nothing about an example; pytest's timeout catches what hangs. Each run draws examples of
# its own, also where Hypothesis sees continuous integration and would draw the same ones for ever; a failure tells how to repeat it.
hypothesis.settings.register_profile("logfleet", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("logfleet")

# How long a test may take to fail of the signal that its timeout sends.
GRACE_S = 30.0
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the stderr that nothing captures."""
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> None:
    """A test goes on where no signal handler of Python runs, or where its exception is swallowed (C, uvloop): end the process.

    pytest's own `faulthandler_timeout` is one for all tests.
    """
    stderr = item.config.stash[STDERR]
    faulthandler.dump_traceback_later(settings.timeout + GRACE_S, exit=True, file=stderr)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> None:
    faulthandler.cancel_dump_traceback_later()

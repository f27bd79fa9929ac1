"""Checks of a fleet: what is wrong with it, or will be, and the command that mends it.

`gathering.gather_snapshot` asks brokers, `run` judges what they reported.
"""

from logfleet.checks.finding import Finding, Severity
from logfleet.checks.table import headline, run

__all__ = ["Finding", "Severity", "headline", "run"]

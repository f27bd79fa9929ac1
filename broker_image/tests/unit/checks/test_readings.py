"""What is taken from a broker's metrics."""

from logfleet.checks.readings import readings
from logfleet.checks.snapshot import Readings

PAGE = """\
# HELP process_open_fds File descriptors in use
# TYPE process_open_fds gauge
process_open_fds 120
process_max_fds 1048576
logfleet_messages_in_total 1.5e6
logfleet_requests_total{api="Fetch"} 7
logfleet_requests_total{api="Produce"} 30000
logfleet_late_transaction_partitions 0
not a sample
"""


def test_the_metrics_that_checks_use_are_read() -> None:
    assert readings(PAGE) == Readings(120.0, 1_048_576.0, 1_500_000.0, 30_000.0, 0.0)


def test_a_page_of_something_else_has_none() -> None:
    assert readings("<html>") == Readings()

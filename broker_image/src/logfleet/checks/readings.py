"""What checks take from a broker's /metrics. PURE."""

import re
from typing import Final

from logfleet.checks.snapshot import Readings

SAMPLE: Final = re.compile(r"^([a-z_]+)(?:\{([^}]*)\})? ([-+.0-9eE]+)$")
FIELDS: Final = {
    ("process_open_fds", ""): "files_open",
    ("process_max_fds", ""): "files_max",
    ("logfleet_messages_in_total", ""): "records_in",
    ("logfleet_requests_total", 'api="Produce"'): "produce_requests",
    ("logfleet_late_transaction_partitions", ""): "late_transactions",
}
"""Metric and labels -> the field that has it."""


def readings(text: str) -> Readings:
    """The metrics that checks use. text: in Prometheus' format."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        sample = SAMPLE.match(line)
        if sample is not None:
            field = FIELDS.get((sample[1], sample[2] or ""))
            if field is not None:
                found[field] = float(sample[3])
    return Readings(**found)

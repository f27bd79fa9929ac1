"""Logfleet: a fleet of log brokers for Kubernetes that speaks Kafka's wire protocol."""

from typing import Final

__version__ = "0.1.0"

NO_ASSERTIONS: Final = (
    "" if __debug__ else "logfleet: assertions guard the data; do not run with python -O"
)
"""Why nothing that writes data may begin in this process, empty if it may. A program that only imports the client is none of our business."""

"""Logfleet: a fleet of log brokers for Kubernetes that speaks Kafka's wire protocol."""

from typing import Final

__version__ = "0.1.0"
"""The only source of the version: `make version V=...` changes it, and what repeats it."""

BUILD_VERSION: Final = "logfleet.build.version"
"""The key by which a broker describes its version; nobody sets it."""

KAFKA_VERSION: Final = "4.4"
"""The release of Apache Kafka whose protocol and configuration keys are followed."""

NO_ASSERTIONS: Final = (
    "" if __debug__ else "logfleet: assertions guard the data; do not run with python -O"
)
"""Why no broker and no command may begin in this process, empty if they may.

A program that imports the client alone goes on: only its own assertions are off.
"""

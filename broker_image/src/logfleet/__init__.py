"""Logfleet: a fleet of log brokers for Kubernetes that speaks Kafka's wire protocol."""

import sys

if not __debug__:  # here, as every way into the code leads through it
    sys.exit("logfleet: assertions guard the data; do not run with python -O")

__version__ = "0.1.0"

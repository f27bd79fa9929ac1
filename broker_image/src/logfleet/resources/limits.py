"""Limits of topics that a command line states as well, so this imports nothing."""

from typing import Final

PARTITIONS_MAX: Final = 100_000  # one topic's; more is a typing mistake
REPLICAS_MAX: Final = 32_767  # int16 on the wire

"""Limits of moves that the command line states as well, so this imports nothing."""

from typing import Final

PER_BROKER: Final = 5
"""As Cruise Control's num.concurrent.partition.movements.per.broker."""
IN_ALL: Final = 50

"""Options that may stand before the sub-command as well: `logfleet -b HOST:PORT topic list`."""

from enum import StrEnum
from typing import Final, NamedTuple

import click


class Format(StrEnum):
    """How a command prints what it found."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"


FORMATS: Final = [each.value for each in Format]


class RootOptions(NamedTuple):
    """What was given before the sub-command; the same behind it counts more."""

    bootstrap: str | None = None
    context: str | None = None
    output: str | None = None


def root_options() -> RootOptions:
    """Those of the running command."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_root().obj
    return found if isinstance(found, RootOptions) else RootOptions()

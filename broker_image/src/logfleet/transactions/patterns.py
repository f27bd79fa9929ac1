"""Patterns of transactional ids, matched in bounded time."""

import re
from typing import Final

LENGTH_MAX: Final = 256
REPEATS_MAX: Final = 2
"""A match of an id of n characters takes n ** REPEATS_MAX steps at most."""

_REPEAT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|([*+{?])")


class BadPattern(ValueError):
    """Not a regular expression, or one that may take long to match."""


class Pattern:
    """A regular expression that the whole of an id has to match.

    Raises BadPattern. Repeated groups, backward references and lookarounds are not allowed: their
    matches may take exponential time, in which a broker would serve nobody.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise BadPattern(f"longer than {LENGTH_MAX} characters")
        if re.search(r"\(\?|\)[*+?{]|\\[1-9]", text):
            raise BadPattern("repeated groups, extensions and backward references are not allowed")
        repeats = sum(1 for found in _REPEAT.finditer(text) if found[1] in ("*", "+", "{"))
        if repeats > REPEATS_MAX:
            raise BadPattern(f"more than {REPEATS_MAX} repetitions")
        try:
            self._compiled = re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise BadPattern(str(error)) from None

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._compiled.fullmatch(text) is not None

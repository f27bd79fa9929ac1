"""What a corpus is made of."""

from collections.abc import Callable
from dataclasses import dataclass

from e2e.compare.side import Side

Script = Callable[[Side], None]


@dataclass(frozen=True)
class Case:
    """Something that is done to both brokers alike. name: unique, letters of a topic's name.

    exact_texts: error messages are compared word by word.
    """

    name: str
    run: Script
    exact_texts: bool = False

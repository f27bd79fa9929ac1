"""One Event: its words. PURE."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EventText:
    """reason: a word in CamelCase. about: what tells it from others of the same words."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    about: str = ""

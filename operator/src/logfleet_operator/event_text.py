"""The text of one Event. PURE."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EventText:
    """reason: in CamelCase. about: tells Events of equal type, reason and note apart."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    about: str = ""

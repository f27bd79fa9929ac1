"""Kubernetes quantities ("500m", "2Gi") as numbers, so that two spellings compare equal."""

import re
from fractions import Fraction
from typing import Final

_SUFFIX: Final = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE](?P<exponent>[+-]?\d{1,2})|(?P<suffix>[a-zA-Z]*))"
)


def parse_quantity(text: str | int) -> Fraction | None:
    """The exact value of a quantity, in its base unit (bytes, cores); None if it is not one."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        return None
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        return number * Fraction(10) ** int(match["exponent"])
    scale = _SUFFIX.get(match["suffix"])
    return None if scale is None else number * scale

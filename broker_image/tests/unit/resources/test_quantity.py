from fractions import Fraction

import pytest
from logfleet.resources.quantity import parse_quantity


@pytest.mark.parametrize(
    "text, value",
    [
        ("2Gi", 2 * 1024**3),
        ("1024Mi", 1024**3),
        ("1.5G", 1_500_000_000),
        ("500m", Fraction(1, 2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        (2, 2),
        ("1e3", 1000),
        ("1E", 10**18),
        ("-1", -1),
        ("10k", 10_000),
    ],
)
def test_a_quantity_has_an_exact_value(text: str | int, value: int | Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "2 Gi", "2gi", "2KiB", "one", "1e", "1e999"])
def test_anything_else_is_no_quantity(text: str) -> None:
    assert parse_quantity(text) is None

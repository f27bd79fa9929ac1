"""Long lists in pages."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

ROWS_MAX: Final = 100


def paged(name: str, rows: Sequence[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The rows of the page that `given` names, under `name`, with how many there are of each."""
    pages = max(1, -(-len(rows) // ROWS_MAX))
    wanted = given.get("page", "1")
    page = min(int(wanted) if wanted.isdecimal() and len(wanted) < 8 else 1, pages) or 1
    return {
        "count": len(rows),
        "page": page,
        "pages": pages,
        name: list(rows[(page - 1) * ROWS_MAX : page * ROWS_MAX]),
    }

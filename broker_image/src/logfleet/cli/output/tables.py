"""Tables for people: drawn on a terminal, columns of plain text elsewhere."""

import sys
from collections.abc import Sequence

import click


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def echo_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell; only the titles if there are no rows.

    A terminal gets a drawn table, without colours if NO_COLOR is set (https://no-color.org).
    """
    table = [[cell_text(cell) for cell in row] for row in rows]
    if is_terminal():
        _draw_table(titles, table)
        return
    table.insert(0, list(titles))
    widths = [max(len(row[column]) for row in table) for column in range(len(titles))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def cell_text(value: object) -> str:
    """A value as tables show it: "-" for none, yes or no, the items of a list behind commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _draw_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box  # only people need it, and it takes a while to load
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)

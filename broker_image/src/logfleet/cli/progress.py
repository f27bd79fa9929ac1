"""A progress bar on stderr while something long runs."""

import contextlib
import sys
from collections.abc import Callable, Iterator


def is_shown(*, output_is_shown: bool) -> bool:
    """Whether a bar helps: stderr is a terminal, and the output does not go there as well."""
    return sys.stderr is not None and sys.stderr.isatty() and not output_is_shown


@contextlib.contextmanager
def progress(what: str, total: int | None, *, is_wanted: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with each advance; draws nothing unless `is_wanted`.

    total: None if unknown.
    """
    if not is_wanted:
        yield lambda _: None
        return
    from rich.console import Console  # only people need it, and it takes a while to load
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)

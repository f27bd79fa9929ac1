"""A bar on stderr while something long runs, for a person who would otherwise see nothing."""

import contextlib
import sys
from collections.abc import Callable, Iterator


def is_shown(*, output_is_shown: bool) -> bool:
    """Whether a bar helps: stderr is a terminal, and what is written does not go by there itself."""
    return sys.stderr is not None and sys.stderr.isatty() and not output_is_shown


@contextlib.contextmanager
def progress(what: str, total: int | None, *, is_wanted: bool) -> Iterator[Callable[[int], None]]:
    """Call what is given with how much more is done; nothing is drawn unless `is_wanted`. total: None if nobody knows."""
    if not is_wanted:
        yield lambda _: None
        return
    from rich.console import Console  # only people need it, and it takes a while to load
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)

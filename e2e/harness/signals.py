"""Controls when Ctrl-C and SIGTERM take effect."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

ENDING = (signal.SIGINT, signal.SIGTERM)


def undisturbed() -> None:
    """Ignore these signals from now on, so that a second Ctrl-C cannot interrupt the cleanup."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Delay signals until the block ends, or until the yielded function is called.

    For calls that must not be interrupted by an exception of a signal handler. If confluent-kafka's
    C code is interrupted while it reads Python objects, the exception is lost or becomes a
    TypeError about its configuration. If `subprocess.Popen` is interrupted, a child process may be
    left behind without a reference. Handlers run only in the main thread, so other threads need no
    such protection.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    arrived: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: arrived.append(number)) for number in ENDING
    }

    def check() -> None:
        while arrived:
            number = arrived.pop(0)
            handler = handlers[signal.Signals(number)]
            if callable(handler):  # a signal that is ignored, as under nohup, stays ignored
                handler(number, None)

    try:
        yield check
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    check()

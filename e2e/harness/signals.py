"""When Ctrl-C and SIGTERM do what they are to do."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

ENDING = (signal.SIGINT, signal.SIGTERM)


def undisturbed() -> None:
    """From now on things are being ended: a second Ctrl-C must not leave half of them."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Keep signals from raising amid a call; what is yielded does what they were to do, as does the end of the block.

    For calls that an exception of a signal's handler would leave half done or lose: one that is raised while the
    C code of confluent-kafka looks at Python objects comes out as a TypeError about its configuration, or not at
    all; one that is raised in `subprocess.Popen` may leave a child that nobody knows. Handlers run in the main
    thread alone, so nothing needs to be kept from other threads.
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
            if callable(handler):  # not if it is ignored, as below nohup
                handler(number, None)

    try:
        yield check
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    check()

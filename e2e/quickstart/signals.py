"""What Ctrl-C and SIGTERM do at which point of the quickstart."""

import contextlib
import signal
from collections.abc import Callable, Iterator

ENDING = (signal.SIGINT, signal.SIGTERM)


def undisturbed() -> None:
    """From now on things are being ended: a second Ctrl-C must not leave half of them."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held() -> Iterator[Callable[[], None]]:
    """Keep signals from raising amid a call; what is yielded does what they were to do, as does the end of the block.

    For confluent-kafka: an exception that a signal's handler raises while the client's C code looks at Python
    objects comes out as a TypeError about its configuration, or not at all.
    """
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

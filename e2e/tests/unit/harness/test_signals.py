"""Ctrl-C amid a call that would lose its exception, or be left half done by it."""

import contextlib
import signal

import pytest

from e2e.harness import flights
from e2e.harness.signals import held
from e2e.quickstart import __main__ as quickstart


@pytest.fixture(autouse=True)
def restored():
    """Ctrl-C raises, whatever the tests were started with; all is as before at the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_raises_when_asked():
    with held() as check:
        check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
        check()


def test_it_raises_at_the_end_at_the_latest():
    done = []

    def call():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the call")

    def run():
        with held():
            call()

    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == ["the rest of the call"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held() as check:
        signal.raise_signal(signal.SIGINT)
        check()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class SwallowingProducer:
    """A client in whose call Ctrl-C arrives, and that loses the exception."""

    def __init__(self):
        self.produced = 0

    def produce(self, *_, **__):
        self.produced += 1
        if self.produced == 3:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def poll(self, _):
        return 0

    def __len__(self):
        return 0


def test_publishing_ends_although_the_client_loses_the_exception(monkeypatch):
    producers = []

    def make(_):
        producers.append(SwallowingProducer())
        return producers[-1]

    monkeypatch.setattr(quickstart, "Producer", make)
    with pytest.raises(KeyboardInterrupt):
        quickstart.publish("127.0.0.1:1", "flights", flights.table().head(10))
    assert producers[0].produced == 3

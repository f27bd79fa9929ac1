import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from logfleet.io.logging import QUEUED_LINES_MAX, LogLimiter, start_logging, write_plainly


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    structlog.reset_defaults()
    root.handlers = handlers
    root.setLevel(level)


def logged(*, as_json: bool, level: str = "info") -> str:
    stream = io.StringIO()
    listener = start_logging(level, json=as_json, stream=stream)
    structlog.get_logger("logfleet.test").info("broker_started", port=9092)
    structlog.get_logger("logfleet.test").debug("too_small")
    logging.getLogger("asyncio").warning("from %s", "elsewhere")
    error = OSError(28, "disk full")
    structlog.get_logger("logfleet.test").error("append_failed", topic="t", exc_info=error)
    listener.stop()
    return stream.getvalue()


def test_lines_are_json_with_one_event_name_each() -> None:
    lines = [json.loads(line) for line in logged(as_json=True).splitlines()]
    assert [line["event"] for line in lines] == [
        "broker_started",
        "from elsewhere",
        "append_failed",
    ]
    assert lines[0]["port"] == 9092
    assert lines[0]["level"] == "info"
    assert lines[0]["logger"] == "logfleet.test"
    assert lines[1]["logger"] == "asyncio"
    assert lines[2]["exception"][0]["exc_value"] == "[Errno 28] disk full"
    assert all(line["timestamp"].endswith("Z") for line in lines)


def test_lines_are_readable_on_a_terminal() -> None:
    text = logged(as_json=False)
    assert "broker_started" in text
    assert "port=9092" in text
    assert "disk full" in text


def test_the_level_may_be_lower() -> None:
    assert "too_small" in logged(as_json=True, level="debug")


def test_a_stalled_stream_drops_lines_and_logs_it() -> None:
    stream = io.StringIO()
    listener = start_logging("info", json=True, stream=stream)
    listener.stop()  # nobody writes now
    log = structlog.get_logger("logfleet.test")
    for number in range(QUEUED_LINES_MAX + 5):
        log.info("line", number=number)
    listener.start()
    listener.stop()  # writes what is queued
    log.info("after")
    listener.start()
    listener.stop()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    (dropped,) = [line for line in events if line["event"] == "log_lines_dropped"]
    assert dropped["count"] == 5


def test_what_happens_often_is_logged_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("logfleet.io.logging.time.monotonic", lambda: now_s)
    seldom = LogLimiter(10)
    assert [seldom.count_event() for _ in range(4)] == [1, 0, 0, 0]
    now_s += 10
    assert [seldom.count_event() for _ in range(2)] == [4, 0]


def test_a_plain_line_stands_behind_what_was_logged_before() -> None:
    stream = io.StringIO()
    listener = start_logging(json=False, stream=stream)
    structlog.get_logger("logfleet.test").info("broker_started")
    write_plainly(listener, "ready: 100% of it")
    listener.stop()
    first, last = stream.getvalue().splitlines()
    assert "broker_started" in first
    assert last == "ready: 100% of it"

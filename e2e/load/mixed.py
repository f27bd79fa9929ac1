"""The mixed load: `python -m e2e.load.mixed BOOTSTRAP ADMIN_PORT` until SIGTERM.

Producers of small and of large batches, a group that reads and commits, a member that comes and goes, an administrator that looks
at everything, and Prometheus. None goes as fast as it can: it is the steps of the broker that are looked at, not its speed.
"""

import http.client
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

TOPIC = "mixed"
GROUP = "readers"
SMALL = b"." * 100
LARGE = b"." * 1024

ending = threading.Event()


def produce(bootstrap: str, value: bytes, per_turn: int, codec: str) -> Callable[[], None]:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": codec, "log_level": 2}
    )

    def turn() -> None:
        for _ in range(per_turn):
            try:
                producer.produce(TOPIC, value)
            except BufferError:  # the disk that stalls takes less than this gives
                break
        producer.poll(0)
        ending.wait(0.01)

    return turn


def _consumer(bootstrap: str) -> Consumer:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "auto.offset.reset": "latest",
        "auto.commit.interval.ms": 200,
        "log_level": 2,
    }
    consumer = Consumer(config)
    consumer.subscribe([TOPIC])
    return consumer


def consume(bootstrap: str) -> Callable[[], None]:
    consumer = _consumer(bootstrap)

    def turn() -> None:
        consumer.consume(1000, 0.1)

    return turn


def come_and_go(bootstrap: str) -> Callable[[], None]:
    def turn() -> None:
        consumer = _consumer(bootstrap)
        until = time.monotonic() + 1
        while time.monotonic() < until and not ending.is_set():
            consumer.consume(100, 0.1)
        consumer.close()

    return turn


def administer(bootstrap: str) -> Callable[[], None]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def turn() -> None:
        admin.list_topics(timeout=30)
        admin.list_consumer_groups().result(30)
        ending.wait(0.5)

    return turn


def scrape(port: int) -> Callable[[], None]:
    def turn() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        connection.close()
        ending.wait(1)

    return turn


def main() -> int:
    bootstrap, admin_port = sys.argv[1], int(sys.argv[2])
    turns = [
        produce(bootstrap, SMALL, 20, "none"),
        produce(bootstrap, LARGE, 40, "none"),
        produce(bootstrap, LARGE, 10, "lz4"),
        consume(bootstrap),
        come_and_go(bootstrap),
        administer(bootstrap),
        scrape(admin_port),
    ]
    signal.signal(signal.SIGTERM, lambda *_: ending.set())

    def repeat(turn: Callable[[], None]) -> None:
        while not ending.is_set():
            turn()

    threads = [threading.Thread(target=repeat, args=[turn], daemon=True) for turn in turns]
    for thread in threads:
        thread.start()
    while not ending.wait(0.5):
        if not all(thread.is_alive() for thread in threads):
            return 1
    for thread in threads:
        thread.join(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())

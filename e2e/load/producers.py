"""The producers of `make failover`, each a process of its own: `python -m e2e.load.producers KIND BOOTSTRAP TOPIC PARTITIONS RATE`.

Each sends numbered records (`KIND.N`) with acks=all and idempotence and default timeouts, to the partitions in turns, until SIGTERM; then it waits for what is on its way.
On standard output it says of each record what became of it: `N PARTITION OFFSET NANOSECONDS TOOK` (OFFSET -1: acknowledged, at one that the client was not told), the time being that of the answer on the
monotonic clock of the machine and TOOK the nanoseconds since it was handed to the client; `N failed REASON` for one that was given up. Between them stands what librdkafka
says of its producer epochs: it may send again under a new one what is written (its issue 4953). The probe gives up on silent requests after a second, as nobody else does.
"""

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

NO_OFFSET = -1
PROBE_TIMEOUT_MS = 1_000
DELIVERY_MS = 120_000


class Stop:
    """Becomes true at SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


def say(number: int, partition: int, offset: int, sent_ns: int) -> None:
    now_ns = time.monotonic_ns()
    print(number, partition, offset, now_ns, now_ns - sent_ns)


def say_failed(number: int, reason: object) -> None:
    print(number, "failed", str(reason).replace("\n", " "))


def confluent(bootstrap: str, topic: str, partitions: int, rate: float, stop: Stop) -> None:
    said = logging.getLogger("librdkafka")
    said.setLevel(logging.DEBUG)
    handler = logging.StreamHandler(sys.stdout)  # written by `poll`, so that no line breaks another
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    said.addHandler(handler)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "debug": "eos",
        },
        logger=said,
    )

    def delivered(number: int) -> Callable[[KafkaError | None, Message], None]:
        sent_ns = time.monotonic_ns()

        def tell(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                say_failed(number, error)
            else:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                # librdkafka tells of success without an offset where the answer itself was lost; the verdict looks for the record
                say(number, partition, NO_OFFSET if offset is None else offset, sent_ns)

        return tell

    number, began = 0, time.monotonic()
    while not stop.asked:
        while number < (time.monotonic() - began) * rate:
            value = f"confluent.{number}".encode()
            try:
                producer.produce(
                    topic, value, partition=number % partitions, on_delivery=delivered(number)
                )
            except BufferError:  # nothing is acknowledged at present
                break
            number += 1
        producer.poll(0.005)
    producer.flush()


async def aiokafka(bootstrap: str, topic: str, partitions: int, rate: float, stop: Stop) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5
    ) as producer:

        async def send(number: int) -> None:
            value = f"aiokafka.{number}".encode()
            sent_ns = time.monotonic_ns()
            future = await producer.send(topic, value, partition=number % partitions)
            future.add_done_callback(lambda done: tell(number, done, sent_ns))

        def tell(number: int, done: "asyncio.Future[object]", sent_ns: int) -> None:
            if done.exception() is not None:
                say_failed(number, done.exception())
            else:
                found = done.result()
                say(number, found.partition, found.offset, sent_ns)  # type: ignore[attr-defined]

        await _paced(send, rate, stop)
        await producer.flush()


async def probe(bootstrap: str, topic: str, partitions: int, rate: float, stop: Stop) -> None:
    from logfleet.client.cluster import Client
    from logfleet.client.producer import Producer as OurProducer

    async with (
        Client(bootstrap, request_timeout_ms=PROBE_TIMEOUT_MS) as client,
        OurProducer(client, linger_ms=0, delivery_timeout_ms=DELIVERY_MS) as producer,
    ):
        sent: set[asyncio.Task[None]] = set()

        async def one(number: int) -> None:
            value = f"probe.{number}".encode()
            sent_ns = time.monotonic_ns()
            try:
                delivery = await producer.send(topic, value=value, partition=number % partitions)
                say(number, number % partitions, (await delivery).offset, sent_ns)
            except Exception as error:  # noqa: BLE001  whatever it is, it is told
                say_failed(number, repr(error))

        async def send(number: int) -> None:
            task = asyncio.ensure_future(one(number))
            sent.add(task)
            task.add_done_callback(sent.discard)

        await _paced(send, rate, stop)
        await asyncio.gather(*sent)


async def _paced(send: Callable[[int], object], rate: float, stop: Stop) -> None:
    number, began = 0, time.monotonic()
    while not stop.asked:
        while number < (time.monotonic() - began) * rate:
            await send(number)  # type: ignore[misc]
            number += 1
        await asyncio.sleep(0.005)


def main() -> None:
    kind, bootstrap, topic, partitions, rate = sys.argv[1:]
    stop = Stop()
    arguments = (bootstrap, topic, int(partitions), float(rate), stop)
    with contextlib.suppress(BrokenPipeError):
        if kind == "confluent":
            confluent(*arguments)
        else:
            asyncio.run({"aiokafka": aiokafka, "probe": probe}[kind](*arguments))
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Kafka's own transactional producer, called from Python: the second protocol as its client has it."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JJavaError

from e2e.harness.jvm import Jvm

SERIALIZER: Final = "org.apache.kafka.common.serialization.StringSerializer"
ERRORS: Final = "org.apache.kafka.common.errors"
BLOCK_MS: Final = 20_000
REPEATED: Final = frozenset({f"{ERRORS}.TimeoutException", f"{ERRORS}.InterruptException"})
"""The same call is to be repeated (KafkaProducer.commitTransaction)."""
FAILED: Final = frozenset(
    f"{ERRORS}.{name}"
    for name in (
        "ProducerFencedException",
        "InvalidProducerEpochException",
        "OutOfOrderSequenceException",
        "AuthorizationException",
        "UnsupportedVersionException",
        "ApplicationRecoverableException",
        "InvalidPidMappingException",
    )
)
"""The producer can only be closed."""


class JavaProducer:
    """One transactional producer in the virtual machine of `java_clients`.

    Calls that time out are repeated. All raise Failed if the producer can only be replaced.
    """

    jvm: ClassVar[Jvm]

    class Failed(Exception):
        """The text is Kafka's."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(timeout_ms),
            "max.block.ms": str(BLOCK_MS),
            "linger.ms": "0",
            "key.serializer": SERIALIZER,
            "value.serializer": SERIALIZER,
        }
        classes = self.jvm.classes
        made = classes.org.apache.kafka.clients.producer.KafkaProducer
        self._record = classes.org.apache.kafka.clients.producer.ProducerRecord
        self._integer = classes.java.lang.Integer
        self._producer: Any = made(self.jvm.properties(config))

    def init(self) -> None:
        if not self._ended(self._producer.initTransactions):
            raise JavaProducer.Failed("it could not be initialised")

    def begin(self) -> None:
        if not self._ended(self._producer.beginTransaction):
            raise JavaProducer.Failed("no transaction could begin")

    def send(self, topic: str, records: Sequence[tuple[int, str]]) -> None:
        """Errors show in `commit`."""
        for partition, value in records:
            record = self._record(topic, partition, None, value)
            if not self._ended(lambda record=record: self._producer.send(record)):
                return

    def commit(self) -> bool:
        """Return whether it is committed; if not, it is to be aborted."""
        return self._ended(self._producer.commitTransaction)

    def abort(self) -> None:
        if not self._ended(self._producer.abortTransaction):
            raise JavaProducer.Failed("the transaction could not be aborted")

    def close(self) -> None:
        """Close it without waiting for anything."""
        duration = self.jvm.classes.java.time.Duration
        with contextlib.suppress(Py4JJavaError):
            self._producer.close(duration.ofMillis(0))

    def _ended(self, call: Any) -> bool:
        """Call it until it returns: true. False after an error that asks for an abort."""
        while True:
            try:
                call()
            except Py4JJavaError as error:
                name = error.java_exception.getClass().getName()
                if name in REPEATED:
                    continue
                if name in FAILED or name == "java.lang.IllegalStateException":
                    raise JavaProducer.Failed(str(error.java_exception)) from None
                print(f"abort: {error.java_exception}", flush=True)
                return False
            else:
                return True


@contextlib.contextmanager
def java_clients() -> Iterator[None]:
    """The virtual machine of all JavaProducers."""
    with Jvm("tools") as jvm:
        JavaProducer.jvm = jvm
        yield

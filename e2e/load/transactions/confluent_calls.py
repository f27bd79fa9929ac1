"""What a call of librdkafka's transactional producer asks its caller to do."""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

CALL_S: Final = 20.0


def repeated(call: Callable[[float], object]) -> None:
    """Repeat a call while its error says that this may help. Raises KafkaException."""
    while True:
        try:
            call(CALL_S)
        except KafkaException as error:
            cause = error.args[0]
            if not (isinstance(cause, KafkaError) and cause.retriable()):
                raise
        else:
            return


def wants_abort(error: KafkaException) -> bool:
    """Whether the transaction is to be aborted, after which the producer goes on."""
    cause = error.args[0]
    return isinstance(cause, KafkaError) and cause.txn_requires_abort()

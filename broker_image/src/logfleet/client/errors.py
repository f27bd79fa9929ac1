"""Errors between a client and a fleet.

ClientError
 +-- KafkaError         a broker answered with an error code
  +-- ConnectionLost     no connection to a broker, or it ended before the response
  |    +-- UnknownHost   the broker's name has no address now
  +-- RequestTimedOut    no response in time; the connection was closed
  +-- NotSupported       the broker is too old (or not built yet) for the request
  +-- AbortRequired      the transaction cannot be committed any more: abort it, begin another
  +-- ProducerFailed     no call of this transactional producer can succeed: make another one
  +-- OutcomeUnknown     a transaction may be committed or not, and nobody reported which
"""

from logfleet.wire.errors import ErrorCode


class ClientError(Exception):
    """retriable: the same call may succeed later. stale_metadata: refresh the metadata first."""

    retriable = False
    stale_metadata = False


class KafkaError(ClientError):
    """code: from the broker. broker_message: the broker's text, or "". subject: what it is about.

    message: the broker's text, else the code's name.
    """

    def __init__(self, code: int, message: str | None = None, *, subject: str = "") -> None:
        self.code = ErrorCode(code)
        self.broker_message = message or ""
        self.message = self.broker_message or self.code.name
        self.subject = subject
        super().__init__(f"{subject}: {self.message}" if subject else self.message)
        self.retriable = self.code.retriable
        self.stale_metadata = self.code.stale_metadata


class ConnectionLost(ClientError):
    """Whether requests under way were handled is unknown."""

    retriable = True
    stale_metadata = True


class UnknownHost(ConnectionLost):
    """No request was on its way.

    It may pass: a service that is just created gets its name a moment later.
    """


class RequestTimedOut(ClientError):
    """As with ConnectionLost, the request may have been handled."""

    retriable = True
    stale_metadata = True


class NotSupported(ClientError):
    """No version of an API that both sides speak, or a field that the version in use lacks."""


class AbortRequired(ClientError):
    """Its cause is the error of a record or a call, after which the transaction must not commit."""


class ProducerFailed(ClientError):
    """Its cause is the coordinator's refusal, as of a producer that another one has replaced.

    `init` of another producer with the same transactional id ends what this one has left open.
    """


class OutcomeUnknown(ClientError):
    """The coordinator may have decided to commit. Its answer was lost, or another producer came.

    Never treat the transaction as aborted. While the producer has not failed, `commit` may be
    called again, and succeeds only if the transaction is committed.
    """


def raise_for(code: int, message: str | None = None, *, subject: str = "") -> None:
    """Raise KafkaError unless `code` is 0."""
    if code:
        raise KafkaError(code, message, subject=subject)

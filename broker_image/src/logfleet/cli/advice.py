"""One line for a refusal: the broker's message, then what to do, by error code and command.

A code alone says little: POLICY_VIOLATION is the response for too many partitions and for records
that a topic keeps. So a broker's message is never replaced, and advice depends on the command that
was run.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

import click

from logfleet.client.errors import AbortRequired, ClientError, KafkaError, ProducerFailed
from logfleet.wire.errors import ErrorCode

MEANINGS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "exists already",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "is not a topic's name: write 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.INVALID_GROUP_ID: "is not a group's name: it may not be empty",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is no regular expression that brokers read",
    ErrorCode.PRODUCER_FENCED: "another producer with this transactional id has taken over",
    ErrorCode.INVALID_PRODUCER_EPOCH: "its producer has gone on, or was replaced",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "its producer has gone on",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read this topic",
    ErrorCode.POLICY_VIOLATION: "a policy of the brokers forbids it",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk of a broker is full or failed",
}
"""The meaning of a code if the broker sends no message: many responses have no field for one."""

_LIST_TOPICS: Final = "`logfleet topic list` shows what there is"
_LIST_GROUPS: Final = "`logfleet group list` shows what there is"
_LIST_TRANSACTIONS: Final = "`logfleet transaction list` shows what there is"
_STOP_MEMBERS: Final = "stop them first"

ADVICE: Final[Mapping[tuple[str, ErrorCode], str]] = {
    ("topic create", ErrorCode.TOPIC_ALREADY_EXISTS): "`logfleet topic alter` changes it",
    ("topic describe", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): _LIST_TOPICS,
    ("topic alter", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): _LIST_TOPICS,
    ("topic delete", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): _LIST_TOPICS,
    ("config describe", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): _LIST_TOPICS,
    ("config set", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): _LIST_TOPICS,
    ("records delete", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): _LIST_TOPICS,
    ("consume", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): _LIST_TOPICS,
    (
        "produce",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ): "`logfleet topic create` makes a topic, and --create does here",
    ("produce", ErrorCode.KAFKA_STORAGE_ERROR): "`logfleet log-dirs` shows which",
    (
        "records delete",
        ErrorCode.POLICY_VIOLATION,
    ): "cleanup.policy of the topic has no delete, so its records are "
    "kept; `logfleet config set` changes it",
    ("group describe", ErrorCode.GROUP_ID_NOT_FOUND): _LIST_GROUPS,
    ("group delete", ErrorCode.GROUP_ID_NOT_FOUND): _LIST_GROUPS,
    ("group delete-offsets", ErrorCode.GROUP_ID_NOT_FOUND): _LIST_GROUPS,
    ("transaction describe", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): _LIST_TRANSACTIONS,
    ("transaction abort", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): _LIST_TRANSACTIONS,
    ("group delete", ErrorCode.NON_EMPTY_GROUP): _STOP_MEMBERS,
    ("group reset-offsets", ErrorCode.NON_EMPTY_GROUP): _STOP_MEMBERS,
    ("group delete-offsets", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC): _STOP_MEMBERS,
}
"""(Command without `logfleet`, code) -> what to do next; it follows the broker's message."""


def explain(error: ClientError, *, with_subject: bool = True) -> str:
    """One line: subject, the broker's message (else the meaning of its code), advice."""
    if isinstance(error, AbortRequired | ProducerFailed) and isinstance(
        error.__cause__, KafkaError
    ):
        error = error.__cause__
    if not isinstance(error, KafkaError):
        return _one_line(str(error))
    message = error.broker_message or MEANINGS.get(error.code, error.code.name)
    if (advice := ADVICE.get((_command(), error.code))) is not None:
        message = f"{message.rstrip().removesuffix('.')}; {advice}"
    if with_subject and error.subject:
        message = f"{error.subject}: {message}"
    return _one_line(message)


def guess(name: str, names: Iterable[str]) -> str:
    """Return the most similar of these names in brackets, behind a blank; empty if none is."""
    near = difflib.get_close_matches(name, names, n=1)
    return f" (do you mean {near[0]}?)" if near else ""


def _command() -> str:
    """The running command, such as `topic create`; empty outside of one."""
    context = click.get_current_context(silent=True)
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, context.command.name or "")
        context = context.parent
    return " ".join(names)


def _one_line(text: str) -> str:
    return " ".join(text.split())

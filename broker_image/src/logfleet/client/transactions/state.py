"""The state of a transactional producer, and what errors mean for it (KIP-98, KIP-360, KIP-1050).

    NEW -> READY -> OPEN -> COMMITTING -> READY
                     |----> ABORTING ---> READY
                     |----> ABORT_DUE --> ABORTING
    any  -> FAILED

An end is sent until it is answered: COMMITTING is never left for ABORTING while the coordinator may
have decided to commit.
"""

from enum import Enum, auto
from typing import Final, NoReturn

from logfleet.client.errors import (
    AbortRequired,
    ClientError,
    KafkaError,
    OutcomeUnknown,
    ProducerFailed,
)
from logfleet.wire.errors import ErrorCode

Identity = tuple[int, int]
"""Producer id and epoch."""
NO_IDENTITY: Final[Identity] = (-1, -1)

# A call failed in a way that a new transaction may not: a partition or group that it may not use,
# a consumer that has left its group, whatever the coordinator calls abortable (KIP-890).
_ABORTS: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
# The only errors of a record that no new transaction of this producer can mend. An invalid epoch is
# not among them: the coordinator may have aborted a slow transaction, and decides when it is ended.
_FATAL_FOR_RECORDS: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
# After these an end was surely not begun by the request that they answer.
_NOT_BEGUN: Final = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class Phase(Enum):
    """NEW: without a producer id. ABORT_DUE: open, but it cannot be committed any more."""

    NEW = auto()
    READY = auto()
    OPEN = auto()
    ABORT_DUE = auto()
    COMMITTING = auto()
    ABORTING = auto()
    FAILED = auto()


class Verdict(Enum):
    """What to do after an error. RETRY: the same again, for as long as a call may take."""

    RETRY = auto()
    ABORT = auto()
    FAIL = auto()


def verdict_of_record(error: ClientError) -> Verdict:
    """After a record was given up."""
    if isinstance(error, KafkaError) and error.code in _FATAL_FOR_RECORDS:
        return Verdict.FAIL
    return Verdict.ABORT


def verdict_of_call(error: ClientError) -> Verdict:
    """After an answer of a coordinator, or none.

    What is not listed fails the producer (KAFKA-18019: retrying after INVALID_PRODUCER_ID_MAPPING
    wrote records twice).
    """
    if error.retriable:
        return Verdict.RETRY
    return Verdict.ABORT if is_abortable(error) else Verdict.FAIL


def is_abortable(error: ClientError) -> bool:
    """Whether another transaction may succeed where this one failed."""
    return isinstance(error, AbortRequired) or (
        isinstance(error, KafkaError) and error.code in _ABORTS
    )


class TransactionState:
    """One producer's. identity: under which it writes.

    v2: the protocol of the open transaction is KIP-890's second version, in which every end gives
    the next epoch, and partitions are added by writing to them. is_begun: the coordinator may have
    it open. bump_due: the next transaction needs a new epoch, as the sequence of a partition is
    uncertain.
    """

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.identity = NO_IDENTITY
        self.v2 = False
        self.is_begun = False
        self.bump_due = False
        self._failure: tuple[type[ClientError], str, ClientError] | None = None
        self._ends_acted_on = 0  # EndTxn requests by which the coordinator may have decided

    # --- steps

    def initialised(self, identity: Identity, *, v2: bool) -> None:
        """The coordinator has given this identity; what an older producer had open has ended."""
        assert self.phase in {Phase.NEW, Phase.READY}, f"init while {self.phase.name}"
        self.phase, self.identity, self.v2, self.bump_due = Phase.READY, identity, v2, False

    def needs_epoch(self, *, v2: bool) -> bool:
        """Whether another epoch is due before a transaction by this protocol.

        The first by the second version needs one, so that nothing sent before counts for it (Kafka:
        `TransactionManager.maybeUpdateTransactionV2Enabled`).
        """
        return self.phase is Phase.READY and (self.bump_due or (v2 and not self.v2))

    def begun(self, *, v2: bool) -> None:
        """A transaction is open, of which the coordinator learns by its first partition."""
        self._raise_failure()
        assert self.phase is Phase.READY, f"begin while {self.phase.name}"
        self.phase, self.v2, self.is_begun = Phase.OPEN, v2, False

    def check_open(self) -> None:
        """Raise unless records and offsets can be added: AbortRequired, ProducerFailed."""
        self._raise_failure()
        assert self.phase is Phase.OPEN, (
            f"no transaction is open, the producer is {self.phase.name}"
        )

    def failed(self, error: ClientError, verdict: Verdict) -> None:
        """A record or a call was given up, so the transaction cannot be committed.

        A failed producer stays so; an end under way decides for itself.
        """
        if verdict is Verdict.FAIL and self.phase is not Phase.FAILED:
            self.phase, self._failure = Phase.FAILED, (ProducerFailed, str(error), error)
        elif self.phase is Phase.OPEN:
            self.phase, self._failure = Phase.ABORT_DUE, (AbortRequired, str(error), error)

    # --- ends

    def check_end(self, *, commit: bool) -> None:
        """Raise if the transaction cannot end so: AbortRequired, ProducerFailed, OutcomeUnknown."""
        if commit or self.phase is Phase.FAILED:
            self._raise_failure()
        allowed = {Phase.OPEN, Phase.COMMITTING if commit else Phase.ABORTING}
        if not commit:
            if self.is_unknown:
                raise OutcomeUnknown("a commit was sent that has no answer: commit again")
            allowed |= {Phase.ABORT_DUE, Phase.COMMITTING}
        wanted = "commit" if commit else "abort"
        assert self.phase in allowed, f"{wanted} while the producer is {self.phase.name}"

    def ending(self, *, commit: bool) -> None:
        """From now on the same end has to be asked for, once a request for it was sent."""
        self.check_end(commit=commit)
        self.phase = Phase.COMMITTING if commit else Phase.ABORTING

    def end_sent(self) -> None:
        """An EndTxn is on its way, and the coordinator may decide by it from now on."""
        self._ends_acted_on += 1

    def end_answered(self, error: ClientError) -> None:
        """An EndTxn failed. It counts as decided unless the answer says otherwise.

        Most codes that may pass do not: a record that was not committed in time is in the log.
        """
        is_not_begun = isinstance(error, KafkaError) and error.code in _NOT_BEGUN
        if is_not_begun or not error.retriable:
            self._ends_acted_on -= 1

    def end_refused(self, error: ClientError) -> NoReturn:
        """The coordinator refused the end for good. Raises what that means.

        If it may have decided by an EndTxn before, the refusal does not say how: another producer
        may have come since.
        """
        if self.is_unknown:
            text = f"the commit was sent, and refused when it was repeated: {error}"
            self.phase, self._failure = Phase.FAILED, (OutcomeUnknown, text, error)
        elif self.phase is Phase.COMMITTING and is_abortable(error):
            self.phase = Phase.OPEN
        self.failed(error, verdict_of_call(error))
        self._raise_failure()
        raise error

    def ended(self, identity: Identity | None) -> None:
        """It is committed or aborted, as was asked. identity: the next one, None: the same."""
        assert self.phase in {Phase.COMMITTING, Phase.ABORTING}, self.phase
        self.phase, self._failure, self._ends_acted_on = Phase.READY, None, 0
        if identity is not None:
            self.identity, self.bump_due = identity, False

    @property
    def is_unknown(self) -> bool:
        """Whether a commit is under way that the coordinator may have decided."""
        return self.phase is Phase.COMMITTING and self._ends_acted_on > 0

    def _raise_failure(self) -> None:
        if self._failure is not None:
            kind, text, cause = self._failure
            raise kind(text) from cause

"""Guards of one partition: a late batch is not appended behind the end of its transaction.

The leader asks the transaction's coordinator before it appends the first batch of a transaction to
a partition. Meanwhile the transaction may end here, and the answer means nothing any more. So the
leader makes a guard before it asks, and each marker that ends the transaction drops it; a batch is
appended only while its guard is there. An object and not a number is compared, as the same producer
and epoch may ask again meanwhile.

A producer sends several batches before the first one is answered. While the coordinator cannot be
asked, a later batch must not overtake an earlier one that is sent again: a guard keeps the lowest
sequence that asked.

Source: KIP-890; Kafka's VerificationStateEntry, ProducerAppendInfo.checkSequence; KAFKA-14920,
KAFKA-19446.
"""

from typing import Protocol

from logfleet.log.producers.states import EPOCH_EACH_SINCE
from logfleet.wire.errors import ErrorCode


class FirstBatch(Protocol):
    """A batch that begins its transaction in a partition; see `BatchHeader`."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class Guard:
    """Made before the coordinator is asked; a batch is appended only while it is still there.

    One guard serves all questions about the transaction of one producer id and epoch. adds: the
    coordinator adds the partition to the transaction (TV2), instead of verifying that it is there.
    lowest_sequence: of the batches that asked. asking: how many have no answer yet. asked_ms: when
    the last of them asked.
    """

    __slots__ = ("adds", "asked_ms", "asking", "epoch", "lowest_sequence", "producer_id")

    def __init__(self, batch: FirstBatch, *, adds: bool) -> None:
        self.producer_id = batch.producer_id
        self.epoch = batch.producer_epoch
        self.lowest_sequence = batch.base_sequence
        self.adds = adds
        self.asking = 0
        self.asked_ms = 0


class Guards:
    """The guards of one partition while one broker leads it in one epoch.

    At most one guard exists for a producer id and epoch.
    """

    __slots__ = ("_of_producer",)

    def __init__(self) -> None:
        self._of_producer: dict[int, list[Guard]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_producer.values()))

    def ask(self, batch: FirstBatch, *, adds: bool, now_ms: int) -> Guard:
        """The guard for a batch about which the coordinator is asked now.

        Call `answered` with it, however the question ends.
        """
        guard = self._find(batch)
        if guard is None:
            guard = Guard(batch, adds=adds)
            self._of_producer.setdefault(batch.producer_id, []).append(guard)
        guard.lowest_sequence = min(guard.lowest_sequence, batch.base_sequence)
        guard.asking += 1
        guard.asked_ms = now_ms
        return guard

    def answered(self, guard: Guard, *, is_final: bool) -> None:
        """A question has ended. is_final: its batch will not be sent again.

        Such a batch holds back no later one.
        """
        guard.asking -= 1
        if is_final and not guard.asking:
            self._drop(guard)

    def refusal(
        self, guard: Guard | None, batch: FirstBatch, *, has_batches: bool
    ) -> ErrorCode | None:
        """Why a batch is not appended that begins its transaction here; None if it may be.

        INVALID_TXN_STATE if the transaction has ended since the guard was made, or there is none.
        OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch must come first. has_batches: whether the
        log remembers batches of the producer; a TV2 producer without them begins at sequence 0.
        """
        if guard is None or self._find(batch) is not guard:
            return ErrorCode.INVALID_TXN_STATE
        lowest = guard.lowest_sequence if has_batches or not guard.adds else 0
        if batch.base_sequence > min(lowest, guard.lowest_sequence):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def appended(self, batch: FirstBatch) -> None:
        """A batch began its transaction: from now on the log itself shows that it is open."""
        guard = self._find(batch)
        if guard is not None:
            self._drop(guard)

    def marked(self, producer_id: int, epoch: int, version: int) -> None:
        """A marker was appended. version: the transaction version that WriteTxnMarkers gives it.

        Guards of later transactions stay: those of higher epochs, and with TV2 those of the
        marker's own.
        """
        guards = self._of_producer.get(producer_id)
        if guards is not None:
            lowest = epoch if version >= EPOCH_EACH_SINCE else epoch + 1
            self._keep(producer_id, [guard for guard in guards if guard.epoch >= lowest])

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Drop guards for which nobody has asked for `expiration_ms`.

        Their producers have gone after an answer that asked them to try again.
        """
        for producer_id, guards in list(self._of_producer.items()):
            kept = [
                each for each in guards if each.asking or now_ms - each.asked_ms < expiration_ms
            ]
            self._keep(producer_id, kept)

    def _find(self, batch: FirstBatch) -> Guard | None:
        for guard in self._of_producer.get(batch.producer_id, ()):
            if guard.epoch == batch.producer_epoch:
                return guard
        return None

    def _drop(self, guard: Guard) -> None:
        guards = self._of_producer.get(guard.producer_id, ())
        self._keep(guard.producer_id, [each for each in guards if each is not guard])

    def _keep(self, producer_id: int, guards: list[Guard]) -> None:
        if guards:
            self._of_producer[producer_id] = guards
        else:
            self._of_producer.pop(producer_id, None)

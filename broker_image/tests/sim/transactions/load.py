"""What transactional producers of a simulation do, drawn before it begins, so that shrinking can leave some out."""

import msgspec

from broker_image.tests.sim.tape import Tape

TRANSACTIONAL = 3
"""One seed of so many has transactions."""
IDS_MAX = 2
DIES, COMES_AGAIN, WRITES_LATE = 1, 2, 3
"""What else than the usual happens to a transaction: its process dies before it ends; EndTxn comes
again long after its answer; so does a record."""
FATES = (0, 0, 0, 0, 0, 0, 0, DIES, COMES_AGAIN, WRITES_LATE)


class TransactionLoad(msgspec.Struct, frozen=True):
    """partitions: that it writes to, `records` times to each. fate: what goes wrong, 0 for nothing."""

    at_ms: int
    producer: int
    partitions: tuple[int, ...]
    records: int
    is_commit: bool
    fate: int


class Style(msgspec.Struct, frozen=True):
    """What a seed draws of transactions. protocols: of each transactional id, 2 or 1 (TV2 or TV1).

    first_epoch: of the ids, when nobody has used them yet. timeout_ms: of their transactions.
    """

    protocols: tuple[int, ...]
    first_epoch: int = 0
    timeout_ms: int = 4_000


def is_drawn(tape: Tape) -> bool:
    return tape.draw("topics.coordinator", TRANSACTIONAL) == 1


def drawn_style(tape: Tape) -> Style:
    ids = 1 + tape.draw("txn.ids", IDS_MAX)
    protocols = tuple(2 - (tape.draw("txn.protocol", 3) == 2) for _ in range(ids))
    first_epoch = (0, 0, 32_764)[tape.draw("txn.first_epoch", 3)]
    return Style(protocols, first_epoch, 2_000 + tape.draw("txn.timeout", 5_000))


def drawn_load(
    tape: Tape, style: Style, partitions: int, until_ms: int
) -> tuple[TransactionLoad, ...]:
    """By time. Each id carries them out one after the other."""
    load = [
        TransactionLoad(
            tape.draw("txn.at", until_ms),
            tape.draw("txn.producer", len(style.protocols)),
            tuple(index for index in range(partitions) if tape.draw("txn.written", 3)) or (0,),
            1 + tape.draw("txn.records", 2),
            tape.draw("txn.commit", 10) < 7,
            FATES[tape.draw("txn.fate", len(FATES))],
        )
        for _ in range(4 + tape.draw("txn.count", 6))
    ]
    return tuple(sorted(load, key=lambda each: each.at_ms))

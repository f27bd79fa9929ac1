"""Producer ids come in blocks: a broker takes a block from the store and hands out its ids.

Kafka: ProducerIdsBlock.
"""

from typing import Final

from logfleet.metadata import keys
from logfleet.metadata.store import KeyValue, Put, Txn, modified_at

BLOCK_SIZE: Final = 1000


def next_block(present: KeyValue | None) -> tuple[range, Txn]:
    """The block after `present`, and the transaction that takes it.

    present: the key `pid/next` as read, None if absent. The ids are the broker's only if this very
    transaction succeeded. If its outcome is unknown, repeat it: if the repetition fails, the block
    is lost or another broker's; take the next one.
    """
    first = 0 if present is None else int(present.value)
    revision = 0 if present is None else present.mod_revision
    write = Put(keys.NEXT_PRODUCER_ID, str(first + BLOCK_SIZE).encode())
    taken = Txn((modified_at(keys.NEXT_PRODUCER_ID, revision),), (write,))
    return range(first, first + BLOCK_SIZE), taken

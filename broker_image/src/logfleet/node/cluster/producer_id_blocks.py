"""Producer ids come in blocks: a broker takes a block from the store and hands out its ids.

Kafka: ProducerIdsBlock.
"""

from typing import Final

from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID
from logfleet.metadata.store import KeyValue, Txn, modified_at

BLOCK_SIZE: Final = 1000


def next_block(present: KeyValue | None) -> tuple[range, Txn]:
    """The block after `present`, and the transaction that takes it.

    present: the key `pid/next` as read, None if absent. The ids are the broker's only if this very
    transaction succeeded. If its outcome is unknown, repeat it: if the repetition fails, the block
    is lost or another broker's; take the next one.
    """
    first = 0 if present is None else int(present.value)
    revision = 0 if present is None else present.mod_revision
    write = NEXT_PRODUCER_ID.put(None, first + BLOCK_SIZE)
    taken = Txn((modified_at(NEXT_PRODUCER_ID.prefix, revision),), (write,))
    return range(first, first + BLOCK_SIZE), taken

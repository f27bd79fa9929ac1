from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID
from logfleet.node.cluster.producer_id_blocks import BLOCK_SIZE, next_block


def test_blocks_follow_each_other_and_one_block_is_taken_once(cluster):
    first, take_first = next_block(None)
    _, take_again = next_block(None)
    assert first == range(BLOCK_SIZE)
    assert cluster.commit(take_first)
    assert not cluster.commit(take_again)
    second, take_second = next_block(cluster.keyspace.get(NEXT_PRODUCER_ID.prefix))
    assert second == range(BLOCK_SIZE, 2 * BLOCK_SIZE)
    assert cluster.commit(take_second)
    assert not cluster.commit(take_second), "repeating after an unknown outcome takes nothing twice"

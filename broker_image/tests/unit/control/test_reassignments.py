import pytest
from logfleet.control.reassignments import refuse_reassignment
from logfleet.wire.errors import ErrorCode


@pytest.fixture
def image(cluster):
    cluster.start(1, 2)
    cluster.create("t", assignments=((0, (1,)), (1, (2,))), partitions=-1)
    return cluster.image


@pytest.mark.parametrize(
    "name, index, replicas, error",
    [
        ("t", 0, (1,), None),
        ("t", 1, (2,), None),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (3,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (2,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 0, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_stays_where_it_is(image, name, index, replicas, error) -> None:
    refusal = refuse_reassignment(image, name, index, replicas, may_change_factor=True)
    assert (refusal.error if refusal else None) == error


def test_more_replicas_are_refused_for_what_was_asked(image) -> None:
    refusal = refuse_reassignment(image, "t", 0, (1, 2), may_change_factor=False)
    assert refusal is not None
    assert refusal.message == "The replication factor is changed from 1 to 2"
    moved = refuse_reassignment(image, "t", 0, (2,), may_change_factor=False)
    assert moved is not None
    assert "does not move replicas" in moved.message

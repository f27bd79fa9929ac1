"""Start and end of a leader's log, for a follower whose end offset the leader does not have."""

from logfleet.client.connection import Connection
from logfleet.node.partitions.replica import FollowerPartition
from logfleet.wire.messages import ListOffsetsRequest, ListOffsetsResponse

EARLIEST = -2
LATEST = -1


async def leader_range(
    connection: Connection, partition: FollowerPartition, replica_id: int, timeout_ms: int
) -> tuple[int, int] | None:
    """(start, end) of the leader's log, the end exclusive; None if the leader answers an error.

    Source: AbstractFetcherThread.fetchOffsetAndTruncate. Raises ClientError.
    """
    ends = []
    for timestamp in (EARLIEST, LATEST):
        wanted = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition.index,
            current_leader_epoch=partition.leader_epoch,
            timestamp=timestamp,
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
        answer = await connection.request(request, ListOffsetsResponse, timeout_ms=timeout_ms)
        row = next((row for each in answer.topics for row in each.partitions), None)
        if row is None or row.error_code:
            return None
        ends.append(row.offset)
    start, end = ends
    return start, end

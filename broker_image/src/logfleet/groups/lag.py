"""The lag of a group in a partition: one rule for the broker's metrics and the command line."""


def lag(end_offset: int | None, committed: int | None) -> int | None:
    """Records that a group has not read yet; None without a committed offset or an end offset.

    end_offset: the end for consumers (exclusive). The lag is negative if the group committed beyond
    the end, for example after a log was lost; consumers get OFFSET_OUT_OF_RANGE then.
    Source: PartitionAssignmentState of Kafka's ConsumerGroupCommand.
    """
    if end_offset is None or committed is None:
        return None
    return end_offset - committed

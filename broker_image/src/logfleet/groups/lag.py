"""How far a group is behind in a partition: the one rule for the broker's metrics and the command line."""


def lag(end_offset: int | None, committed: int | None) -> int | None:
    """Records that a group has yet to read. None where it has committed nothing, or the end is not known.

    end_offset: what consumers may see ends there (exclusive). Below 0 when the group committed beyond the end, as after
    a log was lost: shown as it is, because readers then get OFFSET_OUT_OF_RANGE. Source: PartitionAssignmentState of
    Kafka's ConsumerGroupCommand.
    """
    if end_offset is None or committed is None:
        return None
    return end_offset - committed

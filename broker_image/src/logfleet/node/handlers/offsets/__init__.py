"""APIs of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit."""

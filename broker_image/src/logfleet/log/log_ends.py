"""The ends of a log, as its users read them."""

from logfleet.replication.ends import ReplicaEnds


class HasEnds:
    """Reads from `ends`, which its events move; see ReplicaEnds for what they mean."""

    ends: ReplicaEnds

    @property
    def log_start_offset(self) -> int:
        return self.ends.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.ends.log_end_offset

    @property
    def written_end_offset(self) -> int:
        return self.ends.written_end_offset

    @property
    def recovery_point(self) -> int:
        return self.ends.recovery_point

    @property
    def checkpointed_point(self) -> int:
        return self.ends.checkpointed_point

    @property
    def first_dirty_offset(self) -> int:
        return self.ends.first_dirty_offset

    @property
    def truncations(self) -> int:
        return self.ends.truncations

"""Counts traffic: into partitions that this broker leads, and out of those it has replicas of."""


class Traffic:
    """Counters.

    bytes_in (with batch headers), messages_in: appended. bytes_out: sent to consumers.
    """

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self, bytes_in: int = 0, bytes_out: int = 0, messages_in: int = 0) -> None:
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.messages_in = messages_in

    def add(self, other: "Traffic") -> None:
        """Add another's counts."""
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.messages_in += other.messages_in

    def copy(self) -> "Traffic":
        return Traffic(self.bytes_in, self.bytes_out, self.messages_in)

"""Counts requests that wait in this broker (Kafka: DelayedOperationPurgatory)."""


class ParkedCounts:
    """The counts. fetches: wait for records. produces: wait until their records are committed."""

    __slots__ = ("fetches", "produces")

    def __init__(self) -> None:
        self.fetches = 0
        self.produces = 0

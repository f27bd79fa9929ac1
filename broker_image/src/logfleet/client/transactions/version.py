"""What a cluster has finalized of its features (KIP-584), as its brokers report on connections."""

from collections.abc import Mapping
from typing import Final

TRANSACTION_VERSION: Final = "transaction.version"


class FinalizedFeatures:
    """The levels of the largest epoch that any broker has reported.

    A broker that lags behind reports older ones, with a smaller epoch.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self._levels: Mapping[str, int] = {}

    def learn(self, epoch: int, levels: Mapping[str, int]) -> None:
        """Take over the levels that were finalized at `epoch`, unless newer ones are there.

        -1 is the epoch of a broker that does not know any (Kafka: `ApiVersions.update`).
        """
        if epoch > self.epoch:
            self.epoch, self._levels = epoch, levels

    def level(self, feature: str) -> int:
        """The finalized level; 0 if it is not finalized."""
        return self._levels.get(feature, 0)

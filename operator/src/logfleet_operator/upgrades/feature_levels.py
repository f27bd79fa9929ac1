"""Has the brokers raise their feature level, and reads it. SHELL."""

import structlog
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import ClusterResource

from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.moves import Movers, MovesUnavailable
from logfleet_operator.upgrades.rules import is_due

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class FeatureLevels:
    """Feature levels of Clusters whose brokers are all ready and as the spec wants them."""

    def __init__(self, movers: Movers) -> None:
        self._movers = movers

    async def check(self, cluster: ClusterResource) -> FeatureLevel | None:
        """Raise the level if `spec.featureLevel` asks for it and all brokers can; return it.

        None if no broker answers. A raise that succeeded although its response was lost is seen at
        the next check.
        """
        wanted, bootstrap = cluster.spec.feature_level, manifests.bootstrap_address(cluster)
        try:
            found = await self._movers.level(bootstrap)
            if wanted is None or not is_due(wanted, found):
                return found
            await self._movers.raise_level(bootstrap, wanted)
            log.info("feature_level_raised", cluster=cluster.metadata.name, level=wanted)
            return await self._movers.level(bootstrap)
        except MovesUnavailable as error:
            log.warning("feature_level_unknown", cluster=cluster.metadata.name, error=str(error))
            return None

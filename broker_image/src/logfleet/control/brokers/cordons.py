"""Brokers that are given no new replicas: all of their log directories are cordoned (KIP-1066).

What they have stays, and what is assigned to them by name goes there. `cordoned.log.dirs=*` of the broker says it; single directories are the broker's own matter.
"""

from typing import Final

from logfleet.metadata.image import ClusterImage

CORDONED: Final = "cordoned.log.dirs"
ALL: Final = "*"


def is_whole(value: str | None) -> bool:
    """Whether that value cordons a broker as a whole."""
    return value == ALL


def is_cordoned(image: ClusterImage, broker_id: int) -> bool:
    return is_whole(image.configs_of_broker(broker_id).values.get(CORDONED))

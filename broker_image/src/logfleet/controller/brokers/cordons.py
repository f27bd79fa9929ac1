"""Cordoned brokers get no new replicas: all their log directories are cordoned (KIP-1066).

They keep their replicas, and get those that are assigned to them by name. The broker's config
`cordoned.log.dirs=*` cordons it; single directories are handled by the broker itself.
"""

from typing import Final

from logfleet.metadata.image import ClusterImage

CORDONED: Final = "cordoned.log.dirs"
ALL: Final = "*"


def is_whole(value: str | None) -> bool:
    """Whether the value cordons the whole broker."""
    return value == ALL


def is_cordoned(image: ClusterImage, broker_id: int) -> bool:
    return is_whole(image.configs_of_broker(broker_id).values.get(CORDONED))

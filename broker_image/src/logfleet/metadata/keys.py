"""What `logfleet.node.broker` imports from here; `logfleet.metadata.kinds` declares it."""

from logfleet.metadata.kinds.brokers import Endpoint
from logfleet.metadata.kinds.cluster import ControllerValue

__all__ = ["ControllerValue", "Endpoint"]

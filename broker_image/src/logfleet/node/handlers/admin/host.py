"""What the handlers of administration and metadata need of the broker they run in."""

from typing import Protocol

from logfleet.control.configs import BrokerConfig
from logfleet.metadata.image import ClusterImage
from logfleet.node.cluster.controller_access import ControllerAccess
from logfleet.node.handlers.metadata_creation import TopicCreator
from logfleet.node.handlers.producer_ids import ProducerIds


class AdminHost(Protocol):
    """A broker, as far as these handlers see it. image: the newest; cluster_id: the cluster's, in Kafka's text form."""

    @property
    def node_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def image(self) -> ClusterImage: ...
    @property
    def controller_access(self) -> ControllerAccess: ...
    @property
    def topic_creator(self) -> TopicCreator: ...
    @property
    def producer_ids(self) -> ProducerIds: ...

import pytest
from logfleet.control.elections import election_steps, fence_steps
from logfleet.control.topic_configs import BrokerLayers
from logfleet.control.topics import NewTopic, TopicCreation, create_topic
from logfleet.control.transactions import pack
from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.store import Delete, Put, Txn, check_txn


class Cluster:
    """A metadata store in memory with a controller at work: what is committed is in `image` at once."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.image = ClusterImage()
        self.layers = BrokerLayers()
        self.epoch = 0
        self.elect(0)

    def commit(self, txn: Txn) -> bool:
        check_txn(txn)
        result, batch = self.keyspace.evaluate(txn)
        if batch is not None:
            self.keyspace.apply(batch)
            builder = ImageBuilder(self.image)
            for event in batch.events:
                builder.add(event)
            self.image, _ = builder.build(batch.revision)
        return result.succeeded

    def put(self, key: str, value: object) -> None:
        assert self.commit(Txn(success=[Put(key, keys.encode(value))]))

    def elect(self, broker_id: int) -> None:
        self.commit(Txn(success=[Delete(keys.CONTROLLER)]))
        self.put(keys.CONTROLLER, keys.ControllerValue(broker_id, "i"))
        assert self.image.controller is not None
        self.epoch = self.image.controller.epoch

    def start(self, *broker_ids: int, rack: str | None = None) -> None:
        for broker_id in broker_ids:
            self.put(keys.broker(broker_id), keys.BrokerValue("i", (), rack))
        self.converge()

    def stop(self, broker_id: int) -> None:
        assert self.commit(Txn(success=[Delete(keys.broker(broker_id))]))
        self.converge()

    def converge(self) -> None:
        """Do what the controller does when something has changed."""
        for txn in pack(self.epoch, fence_steps(self.image)):
            assert self.commit(txn)
        for topic in self.image.topics():
            for txn in pack(self.epoch, election_steps(self.image, topic, self.layers)):
                assert self.commit(txn)

    def create(self, name: str, partitions: int = 1, **given) -> TopicCreation:
        topic_id = len(self.image.entries).to_bytes(16, "big")
        new = NewTopic(name, topic_id, 0, partitions, **given)
        creation = create_topic(self.image, self.epoch, new, self.layers)
        assert isinstance(creation, TopicCreation), creation
        for txn in creation.txns:
            assert self.commit(txn)
        return creation

    def topic(self, name: str) -> Topic:
        topic = self.image.topic(name)
        assert topic is not None
        return topic


@pytest.fixture
def cluster():
    return Cluster()

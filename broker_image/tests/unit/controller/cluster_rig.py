from collections.abc import Iterable

import msgspec
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.fencing import admission_steps, fence_steps, newcomers
from logfleet.controller.changes.election_writes import election_steps
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.changes.topics import NewTopic, TopicCreation, create_topic
from logfleet.metadata.image import ClusterImage, Topic
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.brokers import BROKER, BrokerValue
from logfleet.metadata.kinds.cluster import CONTROLLER, ControllerValue
from logfleet.metadata.kinds.topics import PARTITION
from logfleet.metadata.packing import Step
from logfleet.metadata.store import Put, Txn, check_txn
from logfleet.replication.partition_state import with_isr
from logfleet.wire import uuids


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
        assert self.commit(Txn(success=[Put(key, msgspec.json.encode(value))]))

    def elect(self, broker_id: int) -> None:
        self.commit(Txn(success=[CONTROLLER.delete(None)]))
        self.put(CONTROLLER.prefix, ControllerValue(broker_id, "i"))
        assert self.image.controller is not None
        self.epoch = self.image.controller.epoch

    def register(self, *broker_ids: int, **fields) -> None:
        for broker_id in broker_ids:
            self.put(BROKER.key(broker_id), BrokerValue("i", (), **fields))

    def start(self, *broker_ids: int, **fields) -> None:
        self.register(*broker_ids, **fields)
        self.converge()

    def vanish(self, broker_id: int) -> None:
        """Its lease ends, and the controller has not looked yet."""
        assert self.commit(Txn(success=[BROKER.delete(broker_id)]))

    def stop(self, broker_id: int) -> None:
        self.vanish(broker_id)
        self.converge()

    def converge(self) -> None:
        """Do what the controller does when something has changed."""
        self.sweep()
        self.do(admission_steps(self.image))
        self._elect()

    def sweep(self) -> None:
        self.do(fence_steps(self.image))
        self._elect()

    def do(self, steps: Iterable[Step]) -> None:
        for txn in pack(self.epoch, steps):
            assert self.commit(txn)

    def _elect(self) -> None:
        unclean = not newcomers(self.image)
        for topic in self.image.topics():
            self.do(election_steps(self.image, topic, self.layers, may_be_unclean=unclean))

    def create(self, name: str, partitions: int = 1, **given) -> TopicCreation:
        topic_id = len(self.image.entries).to_bytes(16, "big")
        new = NewTopic(name, topic_id, 0, partitions, **given)
        creation = create_topic(self.image, self.epoch, new, self.layers)
        assert isinstance(creation, TopicCreation), creation
        for txn in creation.txns:
            assert self.commit(txn)
        return creation

    def in_sync(self, name: str, index: int, *added: int) -> None:
        """What the leader writes once these have caught up."""
        topic = self.topic(name)
        state = topic.partitions[index]
        members = *state.isr, *((each, self.image.brokers[each].epoch) for each in added)
        key = PARTITION.key((topic.id, index))
        self.put(key, with_isr(state, members))

    def uuid(self, name: str) -> str:
        return uuids.to_text(self.topic(name).id)

    def topic(self, name: str) -> Topic:
        topic = self.image.topic(name)
        assert topic is not None
        return topic

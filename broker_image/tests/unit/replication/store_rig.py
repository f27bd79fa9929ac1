import msgspec
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCE, BrokerValue, FenceValue
from logfleet.metadata.store import Delete, Put, Txn, TxnResult, check_txn
from logfleet.replication.partition_state import Member
from logfleet.types import BrokerEpoch


class Store:
    """A metadata store in memory; what is committed is in `image` at once."""

    def __init__(self) -> None:
        self.keyspace = Keyspace()
        self.image = ClusterImage()

    def commit(self, txn: Txn) -> TxnResult:
        check_txn(txn)
        result, batch = self.keyspace.evaluate(txn)
        if batch is not None:
            self.keyspace.apply(batch)
            builder = ImageBuilder(self.image)
            for event in batch.events:
                builder.add(event)
            self.image, _ = builder.build(batch.revision)
        return result

    def put(self, key: str, value: object) -> int:
        """Returns the revision."""
        return self.commit(Txn(success=[Put(key, msgspec.json.encode(value))])).revision

    def start(self, broker_id: int, state: str = ACTIVE) -> Member:
        """Register the broker anew; returns it with its broker epoch."""
        self.delete(BROKER.key(broker_id))
        epoch = BrokerEpoch(self.put(BROKER.key(broker_id), BrokerValue("i", ())))
        self.fence(broker_id, epoch, state)
        return broker_id, epoch

    def fence(self, broker_id: int, epoch: BrokerEpoch, state: str) -> None:
        self.put(FENCE.key(broker_id), FenceValue(epoch, state))

    def delete(self, key: str) -> None:
        self.commit(Txn(success=[Delete(key)]))

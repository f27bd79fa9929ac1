from logfleet.metadata import keys
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.keyspace import Keyspace
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
        return self.commit(Txn(success=[Put(key, keys.encode(value))])).revision

    def start(self, broker_id: int, state: str = keys.ACTIVE) -> Member:
        """Register the broker anew; returns it with its broker epoch."""
        self.delete(keys.broker(broker_id))
        epoch = BrokerEpoch(self.put(keys.broker(broker_id), keys.BrokerValue("i", ())))
        self.fence(broker_id, epoch, state)
        return broker_id, epoch

    def fence(self, broker_id: int, epoch: BrokerEpoch, state: str) -> None:
        self.put(keys.fence(broker_id), keys.FenceValue(epoch, state))

    def delete(self, key: str) -> None:
        self.commit(Txn(success=[Delete(key)]))

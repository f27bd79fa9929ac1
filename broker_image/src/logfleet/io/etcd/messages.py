"""Translates the store's values to etcd's messages and back.

Keys have the cluster's prefix in etcd, but not in the store's values.
"""

from collections.abc import Iterator
from typing import Any

from logfleet.io.etcd.shim import kv, rpc
from logfleet.metadata.store import (
    Compare,
    Delete,
    Deleted,
    DeletePrefix,
    Event,
    Get,
    KeyValue,
    Operation,
    Put,
    Target,
    Txn,
    TxnResult,
    WatchBatch,
)

_TARGETS = {
    Target.CREATE_REVISION: rpc.Compare.CREATE,
    Target.MOD_REVISION: rpc.Compare.MOD,
    Target.VERSION: rpc.Compare.VERSION,
    Target.VALUE: rpc.Compare.VALUE,
}


class EtcdCodec:
    """Translates for one cluster. prefix: precedes each of its keys in etcd, ends with a slash."""

    def __init__(self, prefix: str) -> None:
        assert prefix.endswith("/"), "else one cluster's name could be a prefix of another's"
        self._prefix = prefix.encode()

    def key(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def range_request(self, prefix: str, after: bytes, revision: int, limit: int) -> Any:
        """One page of the keys under `prefix`.

        It has those behind `after` (b"" for the first), at `revision` (0 for newest).
        """
        start = self.key(prefix)
        return rpc.RangeRequest(
            key=after + b"\0" if after else start,
            range_end=end_of(start),
            revision=revision,
            limit=limit,
        )

    def get_request(self, key: str) -> Any:
        return rpc.RangeRequest(key=self.key(key))

    def watch_request(self, prefix: str, start_revision: int) -> Any:
        start = self.key(prefix)
        return rpc.WatchRequest(
            create_request=rpc.WatchCreateRequest(
                key=start,
                range_end=end_of(start),
                start_revision=start_revision,
                progress_notify=True,
            )
        )

    def txn_request(self, txn: Txn) -> Any:
        return rpc.TxnRequest(
            compare=[self._compare(compare) for compare in txn.compares],
            success=[self._operation(operation) for operation in txn.success],
            failure=[self._operation(operation) for operation in txn.failure],
        )

    def txn_result(self, txn: Txn, response: Any) -> TxnResult:
        operations = txn.success if response.succeeded else txn.failure
        reads = [
            self.first(each.response_range)
            for operation, each in zip(operations, response.responses, strict=True)
            if isinstance(operation, Get)
        ]
        return TxnResult(response.succeeded, response.header.revision, tuple(reads))

    def first(self, response: Any) -> KeyValue | None:
        return self.key_value(response.kvs[0]) if response.kvs else None

    def key_value(self, item: Any) -> KeyValue:
        return KeyValue(
            item.key[len(self._prefix) :].decode(),
            item.value,
            item.create_revision,
            item.mod_revision,
            item.version,
            item.lease,
        )

    def batches(self, response: Any) -> Iterator[WatchBatch]:
        """The revisions in a watch response.

        etcd never splits one over two responses (unless asked to fragment).
        """
        revision = 0
        events: list[Event] = []
        for event in response.events:
            if event.kv.mod_revision != revision:
                if events:
                    yield WatchBatch(revision, tuple(events))
                revision, events = event.kv.mod_revision, []
            events.append(
                Deleted(event.kv.key[len(self._prefix) :].decode())
                if event.type == kv.Event.DELETE
                else self.key_value(event.kv)
            )
        if events:
            yield WatchBatch(revision, tuple(events))

    def _compare(self, compare: Compare) -> Any:
        return rpc.Compare(
            key=self.key(compare.key),
            target=_TARGETS[compare.target],
            result=rpc.Compare.NOT_EQUAL if compare.negated else rpc.Compare.EQUAL,
            **{compare.target.value: compare.operand},
        )

    def _operation(self, operation: Operation) -> Any:
        match operation:
            case Put(key, value, lease):
                put = rpc.PutRequest(key=self.key(key), value=value, lease=lease)
                return rpc.RequestOp(request_put=put)
            case Delete(key):
                delete = rpc.DeleteRangeRequest(key=self.key(key))
                return rpc.RequestOp(request_delete_range=delete)
            case DeletePrefix(prefix):
                start = self.key(prefix)
                delete = rpc.DeleteRangeRequest(key=start, range_end=end_of(start))
                return rpc.RequestOp(request_delete_range=delete)
            case Get(key):
                return rpc.RequestOp(request_range=self.get_request(key))


def end_of(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`, whose UTF-8 has no byte 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])

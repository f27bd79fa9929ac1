import pytest
from logfleet.io.etcd.messages import EtcdCodec, end_of
from logfleet.io.etcd.shim import kv, rpc
from logfleet.metadata.store import (
    Delete,
    Deleted,
    DeletePrefix,
    Get,
    KeyValue,
    Put,
    Txn,
    TxnResult,
    WatchBatch,
    value_is,
)

CODEC = EtcdCodec("/p/")


def event(key: bytes, revision: int, *, deleted: bool = False):
    item = kv.KeyValue(key=b"/p/" + key, mod_revision=revision, version=1)
    return kv.Event(type=kv.Event.DELETE if deleted else kv.Event.PUT, kv=item)


def test_a_response_is_cut_at_its_revisions() -> None:
    response = rpc.WatchResponse(
        events=[event(b"a", 5), event(b"b", 5, deleted=True), event(b"a", 6), event(b"c", 9)]
    )
    assert list(CODEC.batches(response)) == [
        WatchBatch(5, (KeyValue("a", b"", 0, 5, 1), Deleted("b"))),
        WatchBatch(6, (KeyValue("a", b"", 0, 6, 1),)),
        WatchBatch(9, (KeyValue("c", b"", 0, 9, 1),)),
    ]
    assert list(CODEC.batches(rpc.WatchResponse())) == []


def test_a_transaction_is_translated_whole() -> None:
    request = CODEC.txn_request(
        Txn([value_is("a", b"x")], [Put("a", b"y", 7), Delete("b"), DeletePrefix("c/")], [Get("a")])
    )
    compare = request.compare[0]
    assert (compare.key, compare.target, compare.result) == (
        b"/p/a",
        rpc.Compare.VALUE,
        rpc.Compare.EQUAL,
    )
    assert compare.WhichOneof("target_union") == "value"
    put, delete, prefix = request.success
    assert (put.request_put.key, put.request_put.lease) == (b"/p/a", 7)
    assert (delete.request_delete_range.key, delete.request_delete_range.range_end) == (
        b"/p/b",
        b"",
    )
    assert prefix.request_delete_range.range_end == b"/p/c0"
    assert request.failure[0].request_range.key == b"/p/a"


def test_reads_are_those_of_the_list_that_was_done() -> None:
    txn = Txn([value_is("a", b"x")], [Put("b", b"")], [Get("a"), Delete("c"), Get("none")])
    found = rpc.RangeResponse(kvs=[kv.KeyValue(key=b"/p/a", value=b"v", version=1)])
    response = rpc.TxnResponse(
        header=rpc.ResponseHeader(revision=4),
        responses=[
            rpc.ResponseOp(response_range=found),
            rpc.ResponseOp(response_delete_range=rpc.DeleteRangeResponse()),
            rpc.ResponseOp(response_range=rpc.RangeResponse()),
        ],
    )
    expected = TxnResult(succeeded=False, revision=4, reads=(KeyValue("a", b"v", 0, 0, 1), None))
    assert CODEC.txn_result(txn, response) == expected


def test_pages_follow_one_another() -> None:
    first = CODEC.range_request("t/", b"", 0, 10)
    assert (first.key, first.range_end, first.limit) == (b"/p/t/", b"/p/t0", 10)
    second = CODEC.range_request("t/", b"/p/t/x", 8, 10)
    assert (second.key, second.range_end, second.revision) == (b"/p/t/x\0", b"/p/t0", 8)


@pytest.mark.parametrize("prefix", ["a/", "größe", "日本"])
def test_the_end_of_a_prefix_is_behind_everything_that_begins_with_it(prefix: str) -> None:
    end = end_of(prefix.encode())
    assert prefix.encode() + b"\xff" * 4 < end
    assert end[:-1] == prefix.encode()[:-1]

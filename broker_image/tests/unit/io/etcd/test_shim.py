import subprocess
import sys
from typing import Any

import pytest
from logfleet.io.etcd.shim import kv, rpc, stubs

HEADER = {"cluster_id": 2**64 - 1, "member_id": 2**63, "revision": 2**62, "raft_term": 7}
KEY_VALUE = {
    "key": b"\x00\xff",
    "value": bytes(range(256)),
    "create_revision": 2**62,
    "mod_revision": 2**62 + 1,
    "version": 3,
    "lease": -5,
}


def samples() -> list[Any]:
    """Every message that the store sends or reads, each field set that it uses."""
    item = kv.KeyValue(**KEY_VALUE)
    header = rpc.ResponseHeader(**HEADER)
    put = rpc.PutRequest(key=b"k", value=b"v", lease=2**62)
    delete = rpc.DeleteRangeRequest(key=b"k", range_end=b"l")
    read = rpc.RangeRequest(
        key=b"a", range_end=b"b", limit=1000, revision=9, serializable=True, keys_only=True
    )
    compares = [
        rpc.Compare(
            result=rpc.Compare.EQUAL, target=rpc.Compare.CREATE, key=b"a", create_revision=1
        ),
        rpc.Compare(result=rpc.Compare.NOT_EQUAL, target=rpc.Compare.MOD, key=b"a", mod_revision=2),
        rpc.Compare(target=rpc.Compare.VERSION, key=b"a", version=3),
        rpc.Compare(target=rpc.Compare.VALUE, key=b"a", value=b"x"),
    ]
    ranged = rpc.RangeResponse(header=header, kvs=[item], more=True, count=5)
    return [
        read,
        ranged,
        rpc.TxnRequest(
            compare=compares,
            success=[rpc.RequestOp(request_put=put), rpc.RequestOp(request_range=read)],
            failure=[rpc.RequestOp(request_delete_range=delete)],
        ),
        rpc.TxnResponse(
            header=header, succeeded=True, responses=[rpc.ResponseOp(response_range=ranged)]
        ),
        rpc.WatchRequest(
            create_request=rpc.WatchCreateRequest(
                key=b"a", range_end=b"b", start_revision=4, progress_notify=True
            )
        ),
        rpc.WatchResponse(
            header=header,
            watch_id=1,
            created=True,
            canceled=True,
            compact_revision=8,
            cancel_reason="why",
            events=[kv.Event(type=kv.Event.DELETE, kv=item), kv.Event(type=kv.Event.PUT, kv=item)],
        ),
        rpc.LeaseGrantRequest(TTL=3),
        rpc.LeaseGrantResponse(header=header, ID=2**62, TTL=3, error="no"),
        rpc.LeaseRevokeRequest(ID=2**62),
        rpc.LeaseRevokeResponse(header=header),
        rpc.LeaseKeepAliveRequest(ID=2**62),
        rpc.LeaseKeepAliveResponse(header=header, ID=2**62, TTL=3),
        rpc.CompactionRequest(revision=10),
        rpc.CompactionResponse(header=header),
    ]


@pytest.mark.parametrize("message", samples(), ids=lambda message: type(message).__name__)
def test_a_message_survives_the_round_trip(message) -> None:
    sent = message.SerializeToString()
    assert sent
    read = type(message).FromString(sent)
    assert read == message
    assert read.SerializeToString() == sent


def test_field_numbers_are_those_of_etcd() -> None:
    """Bytes as etcd's api/etcdserverpb/rpc.proto and api/mvccpb/kv.proto number them."""
    assert rpc.LeaseKeepAliveRequest(ID=1).SerializeToString() == b"\x08\x01"
    assert rpc.PutRequest(key=b"k", value=b"v", lease=1).SerializeToString() == (
        b"\x0a\x01k\x12\x01v\x18\x01"
    )
    assert kv.KeyValue(
        key=b"k", create_revision=1, mod_revision=2, version=3
    ).SerializeToString() == (b"\x0a\x01k\x10\x01\x18\x02\x20\x03")


def test_stubs_name_the_methods_of_etcd() -> None:
    class Channel:
        def unary_unary(self, path: str, **_) -> str:
            return path

        stream_stream = unary_stream = unary_unary

    assert stubs.KVStub(Channel()).Txn == "/etcdserverpb.KV/Txn"
    assert stubs.LeaseStub(Channel()).LeaseKeepAlive == "/etcdserverpb.Lease/LeaseKeepAlive"
    assert stubs.WatchStub(Channel()).Watch == "/etcdserverpb.Watch/Watch"


def test_it_loads_in_a_fresh_process_without_etcd3s_client_or_a_warning() -> None:
    program = (
        "import sys; import logfleet.io.etcd.store; "
        "assert 'etcd3.client' not in sys.modules and 'tenacity' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)

from pathlib import Path

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata
from logfleet.io.etcd.endpoints import Addresses, Compacted, NoResponse, TlsFiles, translate_error
from logfleet.metadata.store import LeaseNotFound, StoreRefused, StoreUnavailable

TLS = TlsFiles(Path("ca.crt"))


@pytest.mark.parametrize(
    "endpoints, tls, targets",
    [
        (["localhost:2379"], None, ("localhost:2379",)),
        (["http://a:1", " b:2/ "], None, ("a:1", "b:2")),
        (["https://a:1", "b:2"], TLS, ("a:1", "b:2")),
        (["http://[::1]:2379"], None, ("[::1]:2379",)),
    ],
)
def test_endpoints_are_read(endpoints, tls, targets) -> None:
    assert Addresses.parse(endpoints, tls) == Addresses(targets, tls)


@pytest.mark.parametrize(
    "endpoints, tls, why",
    [
        ([], None, "no etcd endpoint"),
        (["localhost"], None, "host:port"),
        (["localhost:"], None, "host:port"),
        (["ftp://a:1"], None, "host:port"),
        ([""], None, "host:port"),
        (["http://a:1"], TLS, "without TLS"),
        (["https://a:1"], None, "needs a CA"),
    ],
)
def test_an_endpoint_that_cannot_be_meant_is_refused(endpoints, tls, why) -> None:
    with pytest.raises(ValueError, match=why):
        Addresses.parse(endpoints, tls)


@pytest.mark.parametrize(
    "code, text, meant",
    [
        ("UNAVAILABLE", "etcdserver: leader changed", NoResponse),
        ("UNAVAILABLE", "etcdserver: request timed out", NoResponse),
        ("DEADLINE_EXCEEDED", "", NoResponse),
        ("INTERNAL", "stream broken", NoResponse),
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseNotFound),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Compacted),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", StoreRefused),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", NoResponse),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", StoreUnavailable),
        ("PERMISSION_DENIED", "etcdserver: permission denied", StoreRefused),
    ],
)
def test_errors_of_etcd_have_one_meaning(code, text, meant) -> None:
    error = translate_error(
        AioRpcError(grpc.StatusCode[code], Metadata(), Metadata(), text), "host:1"
    )
    assert type(error) is meant
    assert "host:1" in str(error)

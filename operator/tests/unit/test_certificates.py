"""The certificates are tried where it counts: in TLS, verified as strictly as Python can."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from logfleet_operator.clusters import certificates
from logfleet_operator.clusters.certificates import Issued, issue, make_authority

NOW = datetime.now(UTC)
AUTHORITY = make_authority("air.fleet authority", NOW)


def issued(*hosts: str, authority: Issued = AUTHORITY) -> Issued:
    return issue(authority.certificate, authority.key, "air.fleet", list(hosts), NOW)


def context(
    path: Path, role: ssl.Purpose, own: Issued, trusted: Issued = AUTHORITY
) -> ssl.SSLContext:
    made = ssl.create_default_context(role, cadata=trusted.certificate.decode())
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.verify_mode = ssl.CERT_REQUIRED
    (path / "crt").write_bytes(own.certificate)
    (path / "key").write_bytes(own.key)
    made.load_cert_chain(path / "crt", path / "key")
    return made


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not ends


def test_brokers_and_members_trust_each_other(tmp_path: Path) -> None:
    member = issued("fleet-etcd-0.fleet-etcd.air.svc", "localhost")
    server = context(tmp_path, ssl.Purpose.CLIENT_AUTH, member)
    handshake(context(tmp_path, ssl.Purpose.SERVER_AUTH, issued()), server, "localhost")
    peer = context(tmp_path, ssl.Purpose.SERVER_AUTH, member)
    handshake(peer, server, "fleet-etcd-0.fleet-etcd.air.svc")


def test_another_clusters_broker_is_not_let_in(tmp_path: Path) -> None:
    other = make_authority("air.other authority", NOW)
    server = context(tmp_path, ssl.Purpose.CLIENT_AUTH, issued("localhost"))
    stranger = context(tmp_path, ssl.Purpose.SERVER_AUTH, issued(authority=other))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(stranger, server, "localhost")


def test_a_brokers_certificate_cannot_serve(tmp_path: Path) -> None:
    server = context(tmp_path, ssl.Purpose.CLIENT_AUTH, issued())
    client = context(tmp_path, ssl.Purpose.SERVER_AUTH, issued())
    client.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(client, server, "localhost")


def test_nothing_outlives_its_authority() -> None:
    late = NOW + timedelta(days=certificates.AUTHORITY_DAYS - 1)
    leaf = issue(AUTHORITY.certificate, AUTHORITY.key, "x", [], late)
    assert leaf.not_after <= AUTHORITY.not_after
    assert issued().not_after == NOW + timedelta(days=certificates.LEAF_DAYS)

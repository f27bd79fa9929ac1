import contextlib
import datetime as dt
import json
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from e2e.lab.pki import (
    EKS,
    MICROK8S,
    Authority,
    Style,
    Subject,
    ensure_pki,
    kubeconfig,
    make_authority,
    make_leaf,
    subjects,
)
from e2e.lab.settings import Settings, Zone

ZONES = (Zone("a", 0), Zone("b", 1))
NOW = dt.datetime.now(dt.UTC)
PEM = serialization.Encoding.PEM


def lab(folder: Path) -> Settings:
    return Settings(root=folder, zones=ZONES, state=folder / "state")


def handshake(folder: Path, authority: Authority, subject: Subject, host: str, flags: int) -> None:
    """A client that has only `flags` verifies a server with a leaf of the authority. Raises SSLCertVerificationError."""
    key, leaf = make_leaf(authority, subject, NOW)
    (folder / "leaf.pem").write_bytes(
        key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + leaf.public_bytes(PEM)
    )
    trusting = ssl.create_default_context(cadata=authority.certificate.public_bytes(PEM).decode())
    trusting.verify_flags = ssl.VerifyFlags(flags)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "leaf.pem")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(down, up, server_hostname=host)
    server = serving.wrap_bio(up, down, server_side=True)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    with contextlib.suppress(ssl.SSLWantReadError):
        server.do_handshake()
    client.do_handshake()


@pytest.mark.parametrize("style", [EKS, MICROK8S])
def test_the_api_server_is_known_by_every_name(tmp_path: Path, style: Style):
    authority = make_authority(style, NOW)
    subject = next(s for s in subjects(lab(tmp_path)) if s.file == "apiserver")
    for name in (*subject.dns_names, *subject.ips):
        handshake(tmp_path, authority, subject, name, 0)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.com"):
        handshake(tmp_path, authority, subject, "example.com", 0)


@pytest.mark.parametrize(
    "style, why",
    [
        (EKS, "Missing Authority Key Identifier"),
        (MICROK8S, "CA cert does not include key usage extension"),
    ],
)
def test_a_strict_verifier_refuses_it_as_people_report_it(tmp_path: Path, style: Style, why: str):
    authority = make_authority(style, NOW)
    subject = Subject("apiserver", "kube-apiserver", dns_names=("localhost",))
    with pytest.raises(ssl.SSLCertVerificationError, match=why):
        handshake(tmp_path, authority, subject, "localhost", ssl.VERIFY_X509_STRICT)


def test_a_node_speaks_for_itself_in_the_group_of_nodes(tmp_path):
    authority = make_authority(EKS, NOW)
    subject = next(s for s in subjects(lab(tmp_path)) if s.file == "node-b")
    _, leaf = make_leaf(authority, subject, NOW)
    assert leaf.subject.rfc4514_string() == "CN=system:node:node-b,O=system:nodes"


def test_every_kubeconfig_names_files_that_exist(tmp_path):
    settings = lab(tmp_path)
    ensure_pki(settings)
    for user in ("admin", "kcm", "scheduler", "proxy", "node-a", "node-b"):
        config = json.loads(settings.kubeconfig(user).read_text())
        assert config == json.loads(kubeconfig(settings, user))
        (entry,) = config["users"]
        assert Path(entry["user"]["client-key"]).stat().st_mode & 0o077 == 0
        assert Path(entry["user"]["client-certificate"]).exists()
        assert Path(config["clusters"][0]["cluster"]["certificate-authority"]).exists()


def test_a_lab_keeps_its_authority(tmp_path):
    settings = lab(tmp_path)
    ensure_pki(settings)
    before = (settings.pki / "ca.crt").read_bytes()
    ensure_pki(settings)
    assert (settings.pki / "ca.crt").read_bytes() == before


@pytest.mark.parametrize("file", ["sa.key", "sa.pub", "front-proxy.crt"])
def test_the_api_server_finds_its_other_keys(tmp_path, file):
    ensure_pki(lab(tmp_path))
    assert (tmp_path / "run" / "pki" / file).exists()

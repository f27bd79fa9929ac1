import datetime as dt
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from e2e.lab.pki import ensure_pki, kubeconfig, make_authority, make_leaf, subjects
from e2e.lab.settings import Settings, Zone

ZONES = (Zone("a", 0), Zone("b", 1))
NOW = dt.datetime.now(dt.UTC)


def lab(folder: Path) -> Settings:
    return Settings(root=folder, zones=ZONES, state=folder / "state")


def test_a_strict_verifier_accepts_the_api_server_by_every_name(tmp_path):
    authority = make_authority(NOW)
    subject = next(s for s in subjects(lab(tmp_path)) if s.file == "apiserver")
    _, leaf = make_leaf(authority, subject, NOW)
    verifiers = PolicyBuilder().store(Store([authority.certificate]))
    for name in subject.dns_names[1:]:
        verifiers.build_server_verifier(x509.DNSName(name)).verify(leaf, [])


def test_a_node_speaks_for_itself_in_the_group_of_nodes(tmp_path):
    authority = make_authority(NOW)
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

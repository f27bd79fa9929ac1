"""What the operator verifies of servers, even if Python is strict by default (since 3.13)."""

import ast
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from logfleet_operator.clusters import certificates
from logfleet_operator.clusters.etcd_client import Access, _context
from logfleet_operator.credentials import login
from logfleet_operator.handlers import watch_settings

from .kubeconfig import kubeconfig

SOURCE = Path(__file__).resolve().parents[2] / "src"
MAKERS = {"create_default_context", "SSLContext"}


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.13 makes contexts."""
    make = ssl.create_default_context

    def made(*positional: Any, **named: Any) -> ssl.SSLContext:
        context = make(*positional, **named)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", made)


def to_the_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))
    return login(watch_settings()).as_ssl_context()


def to_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    del tmp_path, monkeypatch
    now = datetime.now(UTC)
    authority = certificates.make_authority("test", now)
    client = certificates.issue(authority.certificate, authority.key, "client", [], now)
    return _context(Access((), authority.certificate, client.certificate, client.key))


@pytest.mark.parametrize("make", [to_the_api_server, to_etcd])
def test_the_form_of_certificates_is_not_judged_and_all_else_is(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make(tmp_path, monkeypatch)
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield getattr(function, "attr", getattr(function, "id", "")), node


def test_no_context_is_made_past_the_rule() -> None:
    made: set[tuple[str, int]] = set()
    lenient: set[tuple[str, int]] = set()
    for path in SOURCE.rglob("*.py"):
        for name, call in calls(ast.parse(path.read_text())):
            if name in MAKERS:
                made.add((path.name, call.lineno))
            if name == "lenient":
                lenient.update((path.name, inner.lineno) for _, inner in calls(call.args[0]))
    assert made
    assert made <= lenient

"""Where the operator learns how to reach the API server."""

from pathlib import Path

import pytest
from logfleet_operator.credentials import NoCredentials, login
from logfleet_operator.handlers import watch_settings

from .kubeconfig import kubeconfig


def test_a_kubeconfig_says_where_and_who(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))
    found = login(watch_settings())
    assert found.server == "https://example.com:6443"
    assert found.as_http_headers() == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize(
    "content, sentence",
    [
        (None, "No such file"),
        ("[", "the kubeconfig cannot be used"),
        ("{}", "the kubeconfig cannot be used"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, sentence: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(NoCredentials, match=sentence):
        login(watch_settings())


def test_without_any_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoCredentials, match="set KUBECONFIG"):
        login(watch_settings())

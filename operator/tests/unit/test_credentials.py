"""Where the operator learns how to reach the API server."""

import json
from pathlib import Path

import pytest
from logfleet_operator.credentials import NoCredentials, login
from logfleet_operator.handlers import watch_settings


def test_a_kubeconfig_says_where_and_who(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "current-context": "it",
                "clusters": [{"name": "it", "cluster": {"server": "https://example.com:6443"}}],
                "users": [{"name": "it", "user": {"token": "secret"}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
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

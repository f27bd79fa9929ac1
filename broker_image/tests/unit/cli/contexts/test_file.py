import stat
from pathlib import Path

import pytest
from logfleet.cli.contexts.file import (
    contexts_path,
    contexts_text,
    load_contexts,
    parse_contexts,
    store_contexts,
    xdg_folder,
)
from logfleet.cli.contexts.model import Context, Contexts, WrongContext

SOME = Contexts(
    {
        "a.b": Context("a.b", "a:1", is_read_only=True, cluster="id"),
        "plain": Context("plain", "[::1]:9092,b:2"),
        "tls": Context("tls", "c:1", settings={"ssl.truststore.location": '/päth/"q"\\.pem'}),
    },
    "plain",
)


def test_what_is_written_is_read_again() -> None:
    assert parse_contexts(contexts_text(SOME)) == SOME
    assert parse_contexts(contexts_text(Contexts())) == Contexts()


def test_only_the_owner_can_read_the_file_and_its_folder(own_folders: Path) -> None:
    assert load_contexts() == Contexts()
    store_contexts(SOME)
    assert load_contexts() == SOME
    path = contexts_path()
    assert path == own_folders / "contexts.toml"
    path.chmod(0o644)
    store_contexts(SOME)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(own_folders.stat().st_mode) == 0o700
    assert list(own_folders.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_file_as_it_was(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_contexts(SOME)

    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.fchmod", full)
    with pytest.raises(OSError, match="no space"):
        store_contexts(Contexts())
    assert load_contexts() == SOME
    assert len(list(own_folders.iterdir())) == 1


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("current = 5", "current is a name"),
        ("contexts = 5", r"it has \[contexts.NAME\] tables"),
        ("contexts.a = 5", "contexts.a is no table"),
        ("[contexts", "Expected"),
        ("[contexts.a]", "context a lacks bootstrap.servers"),
    ],
)
def test_a_file_that_is_wrong_is_named(own_folders: Path, text: str, sentence: str) -> None:
    own_folders.mkdir(parents=True)
    contexts_path().write_text(text)
    with pytest.raises(WrongContext, match=f"contexts.toml: .*{sentence}.*; correct or remove it"):
        load_contexts()


def test_a_file_that_cannot_be_read_is_refused(own_folders: Path) -> None:
    contexts_path().mkdir(parents=True)
    with pytest.raises(WrongContext, match="contexts cannot be read"):
        load_contexts()


def test_a_current_context_that_is_gone_is_none() -> None:
    assert parse_contexts('current = "gone"').current is None


def test_a_relative_folder_of_the_environment_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert xdg_folder("X", ".config", {"X": "relative"}) == tmp_path / ".config/logfleet"
    assert xdg_folder("X", ".config", {"X": "/etc"}) == Path("/etc/logfleet")


def test_without_a_home_directory_there_are_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(OSError, match="no home directory"):
        xdg_folder("X", ".config", {})

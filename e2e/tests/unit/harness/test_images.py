from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.harness import images
from e2e.lab.commands import LabError
from e2e.lab.docker import Build
from e2e.lab.lab import Lab
from e2e.lab.settings import Settings


class StandIn:
    """A docker that notes what it is asked; `missing` targets cannot be built."""

    missing: frozenset[str] = frozenset()
    starts = True

    def __init__(self) -> None:
        self.asked: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        if not self.starts:
            raise LabError("no daemon")
        self.asked.append("start")
        yield
        self.asked.append("stop")

    def build(self, build: Build) -> str:
        self.asked.append(f"build {build.target}")
        if build.target in self.missing:
            raise LabError(f"no {build.target}")
        return f"sha256:{build.target:0<64}"

    def save(self, tag: str, archive: Path) -> None:
        self.asked.append(f"save {tag}")
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.touch()

    def prune(self) -> None:
        self.asked.append("prune")


@pytest.fixture
def docker(monkeypatch):
    standin = StandIn()
    monkeypatch.setattr(images, "Docker", lambda *_: standin)
    monkeypatch.setattr(images, "build_secrets", lambda _: {})
    return standin


@pytest.fixture
def lab(tmp_path):
    return Lab(Settings(root=tmp_path, zones=(), state=tmp_path / "state"), report=print)


def test_archives_come_in_order_and_the_daemon_ends_after_the_last(docker, lab):
    with images.image_builds(lab, ("test", "broker")) as archive:
        assert archive("broker").exists()
        assert archive("test").exists()
    named = [f"save {images.image_name(target)}" for target in ("test", "broker")]
    assert docker.asked == [
        *("start", "build test", named[0], "build broker", named[1], "prune", "stop")
    ]


def test_an_image_that_did_not_change_is_exported_once(docker, lab):
    for _ in range(2):
        with images.image_builds(lab, ("test",)) as archive:
            archive("test")
    assert docker.asked.count(f"save {images.image_name('test')}") == 1


def test_what_cannot_be_built_is_told_to_whom_waits_for_it(docker, lab):
    docker.missing = frozenset({"test"})
    with images.image_builds(lab, ("test", "broker")) as archive:
        with pytest.raises(LabError, match="no test"):
            archive("test")
        assert archive("broker").exists()
    assert docker.asked[-1] == "stop"


def test_a_daemon_that_does_not_start_is_told_as_such(docker, lab):
    docker.starts = False
    with (
        images.image_builds(lab, ("test",)) as archive,
        pytest.raises(LabError, match="no daemon"),
    ):
        archive("test")
    assert "prune" not in docker.asked

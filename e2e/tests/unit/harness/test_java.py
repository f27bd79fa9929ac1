import platform
from pathlib import Path

import pytest

from e2e.harness.java import JavaMissing, find_java
from e2e.quickstart import __main__ as quickstart


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with no Java at all; call it to install one that says a version."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "ubuntu"})

    def install(version: str, folder: str = "bin") -> Path:
        java = Path(tmp_path) / folder / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
        java.chmod(0o755)
        return java

    return install


@pytest.mark.parametrize("version", ['openjdk version "17.0.15" 2025-04-15', 'version "21" x'])
def test_a_java_that_is_new_enough_is_taken(machine, version):
    java = machine(version)
    assert find_java(at_least=17, wanted_by="Spark") == str(java)


def test_java_home_wins_over_the_path(machine, monkeypatch, tmp_path):
    machine('version "21"')
    wanted = machine('version "17"', "home/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java(at_least=17, wanted_by="Spark") == str(wanted)


@pytest.mark.parametrize(
    "said, named",
    [
        ('openjdk version "11.0.2" 2019', "/bin/java is 11"),
        ('java version "1.8.0"', "/bin/java is 1"),
        ("no Java runtime here", "does not say its version"),
    ],
)
def test_one_that_is_too_old_is_named_in_one_sentence(machine, said, named):
    machine(said)
    with pytest.raises(
        JavaMissing, match=f"^Spark needs Java 17 or newer and .*{named}.*; install"
    ):
        find_java(at_least=17, wanted_by="Spark")


def test_a_java_home_without_java_is_named(machine, monkeypatch):
    machine('version "21"')
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaMissing, match="JAVA_HOME names /nowhere, which has none; unset it, or"):
        find_java(at_least=17, wanted_by="Spark")


@pytest.mark.parametrize(
    "release, package",
    [
        ({"ID": "debian", "VERSION_ID": "12"}, "openjdk-17-jre-headless"),
        ({"ID": "debian", "VERSION_ID": "13"}, "openjdk-21-jre-headless"),
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, "openjdk-21-jre-headless"),
    ],
)
def test_the_quickstart_says_in_one_sentence_what_to_install(
    machine, monkeypatch, capsys, release, package
):
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr("sys.argv", ["quickstart"])
    assert quickstart.main() == 1
    said = capsys.readouterr()
    assert said.err == (
        "quickstart: Spark needs Java 17 or newer and this machine has none; "
        f"install it with: sudo apt-get install {package}\n"
    )
    assert said.out == ""

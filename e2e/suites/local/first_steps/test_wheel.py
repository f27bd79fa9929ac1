"""The package as people install it: its wheel in an empty environment, outside the tree."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.harness.processes import Rig

ROOT = Path(__file__).resolve().parents[4]
UV = Path(sys.executable).parent / "uv"
PINNED = re.compile(r"^[a-zA-Z0-9._-]+==[^ ;\\]+", re.MULTILINE)
WITHIN_S = 300.0

pytestmark = pytest.mark.timeout(600)


BARE = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"]}
"""Nothing of the environment that the tests run in."""
FETCHING = {
    key: text for key, text in os.environ.items() if key not in {"VIRTUAL_ENV", "PYTHONPATH"}
}
"""With what says which index to use, and whom to trust."""


def run(
    directory: Path,
    *command: str | Path,
    stdin: str = "",
    environment: Mapping[str, str] = BARE,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        cwd=directory,
        env=dict(environment),
        check=False,
    )


def must(directory: Path, *command: str | Path, stdin: str = "") -> str:
    done = run(directory, *command, stdin=stdin, environment=FETCHING if command[0] == UV else BARE)
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = (UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable)
    must(ROOT, *build, "--out-dir", out, ROOT / "broker_image")
    (built,) = out.glob("*.whl")
    return built


def installed(directory: Path, requirement: str) -> Path:
    """The folder of the commands of an environment that has this and nothing else.

    Versions are those of the lock: the newest ones change by the day.
    """
    constraints = directory / "constraints.txt"
    lock = (ROOT / "broker_image" / "requirements.lock").read_text()
    constraints.write_text("\n".join(PINNED.findall(lock)))
    environment = directory / "environment"
    must(directory, UV, "venv", "--python", sys.executable, environment)
    must(
        directory,
        *(UV, "pip", "install", "--python", environment / "bin" / "python"),
        *("--constraint", constraints, requirement),
    )
    return environment / "bin"


def test_the_command_starts_without_the_extra_and_says_what_the_others_need(
    wheel: Path, tmp_path: Path
) -> None:
    commands = installed(tmp_path, str(wheel))
    assert "logfleet broker" in must(tmp_path, commands / "logfleet", "--help")
    must(tmp_path, commands / "python", "-c", "import logfleet.client.producer")
    done = run(tmp_path, commands / "logfleet", "broker")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: this needs ")
    assert line.endswith(": pip install 'logfleet[broker]'")


def test_with_the_extra_a_record_goes_through_a_broker(
    wheel: Path, tmp_path: Path, rig: Rig
) -> None:
    logfleet = installed(tmp_path, f"logfleet[broker] @ {wheel.as_uri()}") / "logfleet"
    broker = rig.program("installed", [], BARE)
    port, admin = broker.ports.reserve(), broker.ports.reserve()
    broker.command = [str(logfleet), "broker"]
    for key, value in (
        ("listeners", f"PLAINTEXT://127.0.0.1:{port}"),
        ("logfleet.admin.listener", f"127.0.0.1:{admin}"),
        ("log.dirs", str(tmp_path / "data")),
    ):
        broker.command += ["--override", f"{key}={value}"]
    broker.launch()
    at = ("-b", f"127.0.0.1:{port}")
    broker.wait_until(lambda: run(tmp_path, logfleet, "topic", "list", *at).returncode == 0)
    must(tmp_path, logfleet, "topic", "create", "greetings", *at)
    must(tmp_path, logfleet, "produce", "greetings", *at, stdin="hello\n")
    consume = ("consume", "greetings", "--from-beginning", "--exit-at-end")
    assert must(tmp_path, logfleet, *consume, *at) == "hello\n"
    assert broker.terminate() == 0

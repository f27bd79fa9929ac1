"""The package as people install it: its wheel in an empty environment, outside the tree."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from logfleet import __version__

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


def pythons() -> list[str]:
    """Those of the supported Pythons that this machine has, under pyenv or on PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = []
    for version in ("3.11", "3.12", "3.13"):
        find = (UV, "python", "find", "--no-python-downloads", "--system", version)
        if kept := sorted(pyenv.glob(f"{version}.*/bin/python")):
            found.append(str(kept[-1]))
        elif (done := run(ROOT, *find)).returncode == 0:
            found.append(done.stdout.strip())
    return found


def installed(directory: Path, requirement: str, python: str = sys.executable) -> Path:
    """The folder of the commands of an environment that has this and nothing else.

    Versions are those of the lock: the newest ones change by the day.
    """
    constraints = directory / "constraints.txt"
    lock = (ROOT / "broker_image" / "requirements.lock").read_text()
    constraints.write_text("\n".join(PINNED.findall(lock)))
    environment = directory / "environment"
    must(directory, UV, "venv", "--python", python, environment)
    must(
        directory,
        *(UV, "pip", "install", "--python", environment / "bin" / "python"),
        *("--constraint", constraints, requirement),
    )
    return environment / "bin"


def send_a_record(directory: Path, rig: Rig, logfleet: Path) -> None:
    """Start a broker, create a topic, write and read a record, stop the broker."""
    broker = rig.program("installed", [], BARE)
    port, admin = broker.ports.reserve(), broker.ports.reserve()
    broker.command = [str(logfleet), "broker"]
    for key, value in (
        ("listeners", f"PLAINTEXT://127.0.0.1:{port}"),
        ("logfleet.admin.listener", f"127.0.0.1:{admin}"),
        ("log.dirs", str(directory / "data")),
    ):
        broker.command += ["--override", f"{key}={value}"]
    broker.launch()
    at = ("-b", f"127.0.0.1:{port}")
    broker.wait_until(lambda: run(directory, logfleet, "topic", "list", *at).returncode == 0)
    must(directory, logfleet, "topic", "create", "greetings", *at)
    must(directory, logfleet, "produce", "greetings", *at, stdin="hello\n")
    consume = ("consume", "greetings", "--from-beginning", "--exit-at-end")
    assert must(directory, logfleet, *consume, *at) == "hello\n"
    assert broker.terminate() == 0


@pytest.mark.parametrize("python", pythons())
def test_the_name_alone_installs_the_command_and_a_broker(
    wheel: Path, tmp_path: Path, rig: Rig, python: str
) -> None:
    commands = installed(tmp_path, str(wheel), python)
    logfleet = commands / "logfleet"
    assert must(tmp_path, logfleet, "--version").startswith(f"logfleet {__version__} (Python 3.")
    send_a_record(tmp_path, rig, logfleet)
    for module in ("uvloop", "grpc", "etcd3", "fastavro"):
        find = f"import importlib.util as u; print(u.find_spec('{module}'))"
        assert must(tmp_path, commands / "python", "-c", find) == "None\n"


def test_without_the_extra_a_store_in_etcd_is_one_line(wheel: Path, tmp_path: Path) -> None:
    logfleet = installed(tmp_path, str(wheel)) / "logfleet"
    keys = {
        "node.id": "1",
        "logfleet.metadata.store": "etcd",
        "logfleet.etcd.endpoints": "127.0.0.1:2379",
    }
    overrides = [word for key in keys for word in ("--override", f"{key}={keys[key]}")]
    for command in (("broker", *overrides), ("local",)):
        done = run(tmp_path, logfleet, *command)
        assert done.returncode == 1, done
        assert "pip install 'logfleet[etcd]'" in done.stderr.splitlines()[-1]


def test_the_extras_of_production_run_a_broker(wheel: Path, tmp_path: Path, rig: Rig) -> None:
    commands = installed(tmp_path, f"logfleet[broker] @ {wheel.as_uri()}")
    must(tmp_path, commands / "python", "-c", "import uvloop, logfleet.io.etcd.store")
    send_a_record(tmp_path, rig, commands / "logfleet")

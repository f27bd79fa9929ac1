"""How the operator's process ends when it cannot begin."""

import subprocess
import sys

import pytest
from logfleet_operator import __main__ as program
from logfleet_operator.kube import KubeError
from logfleet_operator.names import Manifest


class Denying:
    """An API server that does not let the operator read CRDs."""

    def __init__(self, _: object) -> None:
        pass

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        del namespace
        raise KubeError(403, "Forbidden", f"{kind} {name} is forbidden")

    async def close(self) -> None:
        pass


def test_a_right_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "ApiServer", Denying)
    monkeypatch.setenv("LOGFLEET_BROKER_IMAGE", "logfleet/broker:1")
    monkeypatch.setenv("LOGFLEET_HTTP_PORT", "0")
    with pytest.raises(SystemExit) as ended:
        program.main()
    line = str(ended.value.code)  # a text: Python prints it and ends with 1
    assert line.startswith(
        "logfleet-operator: may not read CustomResourceDefinition clusters.logfleet.dev"
    )
    assert "templates/rbac.yaml" in line
    assert "\n" not in line


def test_without_assertions_nothing_begins_and_one_line_says_why() -> None:
    ended = subprocess.run(
        [sys.executable, "-O", "-m", "logfleet_operator"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        "logfleet: assertions guard the data; do not run with python -O"
    ]

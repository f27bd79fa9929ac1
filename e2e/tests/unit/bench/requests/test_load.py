"""The load generator against the bare server, both as they run in a bench."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from e2e.bench.requests.load import Measured
from e2e.bench.requests.spec import (
    Case,
    Kind,
    Spec,
    fetch_frame,
    offset_position,
    produce_answer,
    produce_frame,
    save,
)
from e2e.harness.results import ROOT

TOPIC_ID = bytes(16)


def python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


@pytest.fixture
def bare(tmp_path):
    """Start the bare server with a spec; gives its port and process."""
    started: list[subprocess.Popen[str]] = []

    def start(spec: Spec) -> tuple[int, subprocess.Popen[str]]:
        path = tmp_path / "bare.spec"
        save(spec, path)
        command = python("e2e.bench.requests.bare", path, tmp_path)
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline()), process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def produce_spec(tmp_path: Path, records: int, depth: int) -> Spec:
    case = Case("p", Kind.PRODUCE, 1024, records, requests=300, depth=depth)
    answer = produce_answer(TOPIC_ID, 0)
    (tmp_path / "answers").write_bytes(answer)
    return Spec(
        case,
        [produce_frame(case, TOPIC_ID, now_ms=0)],
        str(tmp_path / "answers"),
        [len(answer)],
        [records],
        offset_at=offset_position(TOPIC_ID),
    )


def fetch_spec(tmp_path: Path, sizes: list[int]) -> Spec:
    case = Case("f", Kind.FETCH, 1024, 1, requests=301, depth=2, answer_bytes=1)
    answers = [bytes([number]) * size for number, size in enumerate(sizes)]
    (tmp_path / "answers").write_bytes(b"".join(answers))
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    frames = [fetch_frame(case, TOPIC_ID, 0, number) for number in range(len(sizes))]
    return Spec(case, frames, str(tmp_path / "answers"), ends, [*range(len(sizes))])


def run(spec: Spec, path: Path, port: int, pid: int, *options: str):
    save(spec, path)
    return subprocess.run(
        python("e2e.bench.requests.load", path, port, pid, *options),
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("records", [1, 63])
@pytest.mark.parametrize("depth", [1, 5])
def test_every_produce_is_answered_and_its_cost_measured(tmp_path, bare, records, depth):
    spec = produce_spec(tmp_path, records, depth)
    port, server = bare(spec)
    done = run(spec, tmp_path / "spec", port, server.pid)
    measured = msgspec.json.decode(done.stdout, type=Measured)
    assert (measured.requests, measured.records) == (300, 300 * records)
    assert 0 < measured.cpu_s < measured.wall_s * (os.cpu_count() or 1)


@pytest.mark.parametrize("sizes", [[100, 9, 16 * 1024], [100, 300_000, 5_000_000]])
def test_fetches_get_what_is_theirs_small_or_large(tmp_path, bare, sizes):
    spec = fetch_spec(tmp_path, sizes)
    port, server = bare(spec)
    done = run(spec, tmp_path / "spec", port, server.pid)
    assert done.returncode == 0, done.stderr
    measured = msgspec.json.decode(done.stdout, type=Measured)
    # the 201st request, the first that counts, is for the third answer: two records, and 100 whole turns follow
    assert (measured.requests, measured.records) == (301, 2 + 100 * (0 + 1 + 2))


def test_an_offset_that_does_not_move_on_is_a_wrong_answer(tmp_path, bare):
    spec = produce_spec(tmp_path, 1, 1)
    port, server = bare(spec)
    done = run(spec, tmp_path / "spec", port, server.pid, "--moves")
    assert done.returncode != 0
    assert b"base offset 0 instead of 1" in done.stderr


def test_other_bytes_are_a_wrong_answer(tmp_path, bare):
    spec = fetch_spec(tmp_path, [100, 200])
    port, server = bare(spec)
    changed = tmp_path / "changed"
    changed.write_bytes(b"\0" * 100 + b"\1" * 199 + b"x")
    wrong = msgspec.structs.replace(spec, answers=str(changed))
    done = run(wrong, tmp_path / "spec", port, server.pid)
    assert done.returncode != 0
    assert b"WrongAnswer" in done.stderr

"""The plugin in real runs of pytest, each a process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from logfleet.testing import Broker

from broker_image.tests.unit.testing.processes import ended

pytest_plugins = ["pytester"]

PROCESSES = """
import json, os
from pathlib import Path

def write(path, *brokers):
    pids = [broker.pid for broker in brokers]
    pids += [brokers[0]._prepared.pid, brokers[0]._prepared.client().pid]
    path.write_text(json.dumps({"pids": pids, "directories": [str(each.directory) for each in brokers]}))
"""


def runs(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def test_a_run_without_brokers_imports_nothing_and_starts_nothing(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
        import sys
        from pathlib import Path

        def test_nothing():
            ours = {name for name in sys.modules if name.startswith("logfleet")}
            assert ours == {"logfleet", "logfleet.testing", "logfleet.testing.plugin"}
            assert not {"msgspec", "asyncio", "structlog"} & set(sys.modules)
            tasks = Path("/proc/self/task").iterdir()
            assert [(task / "children").read_text() for task in tasks] == [""]
    """)
    runs(
        pytester, "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest"
    ).assert_outcomes(passed=1)


def test_a_test_gets_a_broker_and_nothing_of_it_is_left(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        PROCESSES
        + """
def test_it(kafka_broker, kafka_broker_session, request):
    assert "group.initial.rebalance.delay.ms" in kafka_broker.config
    kafka_broker.create_topic("orders", 3)
    assert kafka_broker.end("orders", 2) == 0
    assert kafka_broker.pid != kafka_broker_session.pid
    write(request.config.rootpath / "seen.json", kafka_broker, kafka_broker_session)
"""
    )
    runs(pytester).assert_outcomes(passed=1)
    seen = json.loads((pytester.path / "seen.json").read_text())
    assert ended(seen["pids"])
    assert [path for path in map(Path, seen["directories"]) if path.exists()] == []


def test_fixtures_of_ones_own_have_a_scope_keys_and_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import logfleet.testing
        import pytest

        orders = logfleet.testing.broker(
            scope="module", config={"message.max.bytes": "4096"}, topics={"orders": 2}
        )

        @pytest.fixture
        def address(orders):
            return orders.bootstrap

        seen = []

        @pytest.mark.parametrize("time", [1, 2])
        def test_one_broker_serves_the_module(orders, address, time):
            assert orders.end("orders", 1) == 0
            assert orders.config["message.max.bytes"] == "4096"
            seen.append(address)
            assert len(set(seen)) == 1
    """)
    runs(pytester).assert_outcomes(passed=2)


def test_a_failed_test_shows_the_log_and_keeps_the_directory(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def test_fails(kafka_broker):
            assert kafka_broker.bootstrap == "elsewhere"

        @pytest.fixture
        def broken(kafka_broker):
            raise RuntimeError("a fixture on it")

        def test_is_not_reached(broken):
            pass
    """)
    result = runs(pytester)
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*- kafka_broker -*", "kept in *kafka_broker0", "*broker_started*"]
    )
    kept = [
        line.removeprefix("kept in ") for line in result.outlines if line.startswith("kept in ")
    ]
    assert len(kept) == 2
    assert all((Path(directory) / "data-1").is_dir() for directory in kept)


def test_each_worker_of_xdist_has_brokers_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        PROCESSES
        + """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_it(kafka_broker, number, request):
    kafka_broker.create_topic("orders")
    write(request.config.rootpath / f"seen-{number}.json", kafka_broker)
"""
    )
    runs(pytester, "-n", "2").assert_outcomes(passed=4)
    files = sorted(pytester.path.glob("seen-*.json"))
    pids = [json.loads(path.read_text())["pids"] for path in files]
    assert len({prepared for _, prepared, _ in pids}) == 2
    assert ended([pid for each in pids for pid in each])


def test_brokers_keep_their_assertions_under_python_o(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(kafka_broker):
            kafka_broker.create_topic("orders")
            if __debug__ or kafka_broker.end("orders") != 0:
                raise RuntimeError
    """)
    command = [sys.executable, "-O", "-m", "pytest", "-p", "no:cacheprovider"]
    result = pytester.run(*command)
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_no_process_is_left_when_a_run_is_ended(
    pytester: pytest.Pytester, number: signal.Signals
) -> None:
    """A fleet with a broker that is stopped: its etcd and its client end, too."""
    temporary = pytester.mkdir("temporary")
    os.mkfifo(pytester.path / "seen.json")
    pytester.makepyfile(
        PROCESSES
        + """
import signal

def test_it(kafka_fleet, request):
    kafka_fleet[2].pause()
    write(request.config.rootpath / "seen.json", *kafka_fleet)
    signal.pause()
"""
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    with run:
        seen = json.loads((pytester.path / "seen.json").read_text())
        children = [int(pid) for pid in children_of(seen["pids"][-2])]
        assert set(seen["pids"]) <= {*children, seen["pids"][-2]}
        assert len(children) == 5  # three brokers, the client, etcd
        os.killpg(run.pid, number)
        output, _ = run.communicate()
    assert ended([*seen["pids"], *children])
    if number == signal.SIGINT:
        assert run.returncode == pytest.ExitCode.INTERRUPTED, output.decode()
    assert [path for path in map(Path, seen["directories"]) if path.exists()] == []
    assert list(temporary.glob("logfleet-*")) == []  # where etcd was


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_same_tests_run_on_a_kafka_that_runs_already(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import logfleet.testing
        import pytest

        small = logfleet.testing.broker(config={"message.max.bytes": "4096"})
        filled = logfleet.testing.broker(topics={"payments": 2})

        def test_on_both(kafka_broker, filled):
            kafka_broker.create_topic("orders", 2)
            assert (kafka_broker.end("orders", 1), filled.end("payments", 1)) == (0, 0)
            assert kafka_broker.leader_id("orders") == 1
            with pytest.raises(AttributeError):
                kafka_broker.dance

        def test_on_ours(kafka_broker):
            kafka_broker.kill()

        def test_with_keys(small):
            raise AssertionError
    """)
    with Broker() as kafka:
        result = runs(pytester, "-rs", "--kafka-bootstrap", kafka.bootstrap)
        result.assert_outcomes(passed=1, skipped=2)
        result.stdout.fnmatch_lines([f"*kill needs a broker of its own, not *{kafka.bootstrap}"])
        kafka.create_topic("orders")  # what the tests made is gone

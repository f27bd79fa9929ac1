"""One lab for all suites on Kubernetes.

`KEEP=1` leaves it up, `REUSE=1` takes the lab that is up (for work on the suites: seconds instead of a minute) and
leaves it up again; `LAB_WAIT=600` waits for another run that has it.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from e2e.harness.java import find_java
from e2e.harness.kube.fleet import (
    PARTITIONS,
    TOPICS,
    Fleet,
    install_example_fleet,
    install_operator,
    topic,
    wait_brokers,
)
from e2e.harness.kube.kubernetes import Kubernetes
from e2e.harness.kube.kubernetes_rig import Rig, running_rig
from e2e.harness.kube.spark import SparkJobs
from e2e.lab.settings import settings_from
from e2e.load.cluster import HEADING, Load, Row, wait_whole
from e2e.load.streamed import Streamed

HERE = Path(__file__).parent
RIG = pytest.StashKey[Rig]()
# The lab without a fleet first: it cuts a zone's power. What a suite does to the fleet it undoes.
ORDER = (
    *("test_lab", "test_flights", "test_spark_jobs", "test_topics", "test_replication"),
    *("test_faults", "test_losses", "test_restored", "test_scaling", "test_rolling"),
)
JOBS = "streams"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        item.add_marker(pytest.mark.kubernetes)
    rest = [item for item in items if item not in ours]
    items[:] = rest + sorted(ours, key=lambda item: ORDER.index(item.path.stem))


@pytest.fixture(scope="session")
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None

    pending: deque[str] = deque()

    def report(line: str) -> None:
        pending.append(line)
        if threading.current_thread() is threading.main_thread():  # only it may touch the capture
            with capture.global_and_fixture_disabled():
                while pending:
                    print(f"  {pending.popleft()}", flush=True)

    find_java(at_least=17, wanted_by="Spark")  # told now, not after minutes
    settings = settings_from(os.environ, Path.home())
    keep, reuse = (os.environ.get(name) == "1" for name in ("KEEP", "REUSE"))
    wait_s = float(os.environ.get("LAB_WAIT", "0"))
    with running_rig(settings, report, keep=keep, reuse=reuse, wait_s=wait_s) as running:
        request.config.stash[RIG] = running
        try:
            yield running
        finally:
            del request.config.stash[RIG]


@pytest.fixture(scope="session")
def fleet(rig: Rig) -> Fleet:
    """The operator's chart and the committed examples, Ready in three zones."""
    rig.wait_for_images("broker", "operator")
    with rig.part("operator"):
        install_operator(rig.kubernetes)
    with rig.part("fleet of the examples"):
        return install_example_fleet(rig.kubernetes, "flights")


@pytest.fixture
def kubernetes(rig: Rig) -> Kubernetes:
    return rig.kubernetes


@pytest.fixture(scope="module")
def table(rig: Rig) -> Iterator[list[Row]]:
    rows: list[Row] = []
    yield rows
    rig.say(HEADING)
    for row in rows:
        rig.say(str(row))


@pytest.fixture(scope="module")
def streamed(
    fleet: Fleet, rig: Rig, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Streamed]:
    """Of each file its own, by the file's name."""
    rig.wait_for_images("spark", "test")
    name = f"streamed-{request.path.stem.removeprefix('test_')}"
    fleet.kubernetes.apply(
        topic(name, fleet.name, PARTITIONS, replicas=3), namespace=fleet.namespace
    )
    fleet.wait_topic(name)
    jobs = SparkJobs(fleet.kubernetes, JOBS)
    running = Streamed(fleet, jobs, name, tmp_path_factory.mktemp(name))
    try:
        with rig.part("a streaming job that reads"):
            running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def load(
    fleet: Fleet, tmp_path: Path, streamed: Streamed, request: pytest.FixtureRequest
) -> Iterator[Load]:
    """On a topic of its own, of three replicas, or as many as its parameter says."""
    name = f"kept-{time.monotonic_ns()}"
    wanted = topic(name, fleet.name, PARTITIONS, replicas=getattr(request, "param", 3))
    fleet.kubernetes.apply(wanted, namespace=fleet.namespace)
    fleet.wait_topic(name)
    running = Load(fleet.outside, name, tmp_path)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        fleet.kubernetes.delete(TOPICS, name, fleet.namespace)


@pytest.fixture
def end(
    fleet: Fleet, load: Load, table: list[Row], rig: Rig, streamed: Streamed
) -> Callable[[str], None]:
    """The fleet is whole again and has served everybody; what was acknowledged is there, once and in order."""

    def judge(scenario: str) -> None:
        wait_whole(fleet.outside)
        wait_brokers(fleet)
        load.wait_served()
        row = load.end(scenario)
        table.append(row)
        for said in (str(row), *row.out_of_order):
            rig.say(said)
        assert row.verdict.is_clean, row
        assert row.failed == []
        assert row.commits_back == []
        assert streamed.is_running(), "the streaming job has ended"

    return judge


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails says what is not well in the cluster, and leaves a folder with all of it."""
    report = yield
    running = item.config.stash.get(RIG, None)
    if running is not None and report.failed and report.when != "teardown":
        report.sections.append(("evidence", running.keep_evidence()))
    return report

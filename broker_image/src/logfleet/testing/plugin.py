"""The pytest plugin: real brokers as fixtures.

pytest imports this module in every run on a machine where it is installed. So it imports nothing
but pytest and the standard library, and does nothing until a collected test asks for one of the
fixtures (jaxtyping#220 and posthog#62696 are what happens to others).

Each test process has a prepared process of its own, so each worker of pytest-xdist has one. It is
started once all tests are collected, and imports while the first ones run.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

if TYPE_CHECKING:
    from logfleet.testing.brokers import Broker
    from logfleet.testing.fleets import Fleet
    from logfleet.testing.given import GivenKafka
    from logfleet.testing.prepared import Prepared

Scope = Literal["session", "package", "module", "class", "function"]

OPTION: Final = "--kafka-bootstrap"
PREPARED: Final = "_logfleet_prepared"
"""The fixture on which all others stand: its name shows which tests need a broker."""
OPEN: Final = pytest.StashKey["list[tuple[str, Broker | Fleet]]"]()
"""The brokers of fixtures that are open, with the fixtures' names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("logfleet").addoption(
        OPTION,
        metavar="HOST:PORT",
        help="Run tests of kafka_broker and kafka_fleet on this Kafka, which runs already. "
        "Tests that kill, pause or disturb brokers are skipped.",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the prepared process if a test needs a broker."""
    if session.config.option.collectonly:
        return
    if any(PREPARED in getattr(item, "fixturenames", ()) for item in session.items):
        from logfleet.testing.prepared import shared

        shared()


@pytest.fixture(scope="session")
def _logfleet_prepared(request: pytest.FixtureRequest) -> "Iterator[Prepared]":
    """The process from which brokers are forked."""
    from logfleet.testing.prepared import close_shared, shared

    config = request.config
    config.stash[OPEN] = []
    config.pluginmanager.register(_Reports(config), "logfleet-reports")
    yield shared()
    close_shared()


class _Reports:
    """Shows the logs of the brokers of a test that failed, and keeps their directories."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            for name, cluster in self._config.stash[OPEN]:
                if name in getattr(item, "fixturenames", ()):
                    cluster.keep = True
                    text = f"kept in {cluster.directory}\n{cluster.log_tail()}"
                    report.sections.append((name, text))
        return report


@contextmanager
def _opened(
    request: pytest.FixtureRequest, made: "Callable[[Path], Broker | Fleet]"
) -> "Iterator[Broker | Fleet]":
    """A cluster that serves, in a directory that stays if its test fails."""
    name = request.fixturename or "kafka"
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    directory = factory.mktemp(name)
    still_open = request.config.stash[OPEN]
    cluster = made(directory)
    cluster.keep = False
    with cluster:
        still_open.append((name, cluster))
        try:
            yield cluster
        finally:
            still_open.remove((name, cluster))


@contextmanager
def _given(
    bootstrap: str, config: Mapping[str, str] | None, topics: Mapping[str, int] | None
) -> "Iterator[GivenKafka]":
    from logfleet.testing.given import GivenKafka

    if config:
        pytest.skip(f"the test needs its own configuration, not {OPTION} {bootstrap}")
    kafka = GivenKafka(bootstrap)
    try:
        kafka.create_topics(topics or {})
        yield kafka
    finally:
        kafka.close()


def broker(
    *,
    scope: Scope = "function",
    config: Mapping[str, str] | None = None,
    topics: Mapping[str, int] | None = None,
) -> Any:
    """A fixture of one broker: assign it to a name in a conftest.py or a module of tests.

    scope: of the fixture. config: Kafka's keys. topics: name -> partitions.
    """

    def make(directory: Path, prepared: "Prepared") -> "Broker":
        from logfleet.testing.brokers import Broker

        return Broker(config, topics=topics, directory=directory, prepared=prepared)

    return _fixture(scope, config, topics, make)


def fleet(
    size: int = 3,
    *,
    scope: Scope = "function",
    zones: Sequence[str] = ("a", "b", "c"),
    config: Mapping[str, str] | None = None,
    topics: Mapping[str, int] | None = None,
) -> Any:
    """A fixture of a fleet; see `broker`. zones: racks, given to the brokers in turn."""

    def make(directory: Path, prepared: "Prepared") -> "Fleet":
        from logfleet.testing.fleets import Fleet

        return Fleet(
            size, zones=zones, config=config, topics=topics, directory=directory, prepared=prepared
        )

    return _fixture(scope, config, topics, make)


def _fixture(
    scope: Scope,
    config: Mapping[str, str] | None,
    topics: Mapping[str, int] | None,
    make: "Callable[[Path, Prepared], Broker | Fleet]",
) -> Any:
    @pytest.fixture(scope=scope)
    def kafka(
        request: pytest.FixtureRequest, _logfleet_prepared: "Prepared"
    ) -> "Iterator[Broker | Fleet | GivenKafka]":
        bootstrap = request.config.getoption(OPTION)
        if bootstrap:
            with _given(bootstrap, config, topics) as given:
                yield given
            return
        with _opened(request, lambda directory: make(directory, _logfleet_prepared)) as cluster:
            yield cluster

    return kafka


kafka_broker = broker()
kafka_broker_session = broker(scope="session")
kafka_fleet = fleet()
kafka_fleet_session = fleet(scope="session")

"""The clients of the recipes, and the fixtures of `logfleet.testing` (which pytest finds by its entry point)."""

from collections.abc import Iterator

import pytest

from e2e.suites.local.testing.clients import Opened


@pytest.fixture(params=list(Opened.of))
def client(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Makes producers and consumers of each library in turn."""
    opened = Opened(request.param)
    yield opened
    opened.close()

"""Tests of the operator are silent: what it logs is checked nowhere and costs time."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True, scope="module")
def silent() -> Iterator[None]:
    """For these modules alone: other members' tests in the same run do look at what is logged."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()

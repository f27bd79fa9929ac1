import resource
import subprocess
import sys

import pytest
from logfleet.io.descriptors import (
    LIMIT_WANTED,
    NO_LIMIT,
    OPEN_FILES_MAX,
    PER_CONNECTION,
    raise_limit,
    shares_of,
)


@pytest.mark.parametrize("limit", [64, 128, 256, 1024, 4096, 20_000, 1 << 20])
def test_connections_leave_the_files_theirs(limit):
    shares = shares_of(limit)
    assert shares.limit == limit
    assert 0 < shares.open_files <= min(OPEN_FILES_MAX, limit // 4)
    assert shares.connections >= 1
    if shares.connections > 1:
        left = limit - shares.connections * PER_CONNECTION - shares.open_files
        assert left >= 64 + shares.open_files // 4


def test_with_the_wanted_limit_nothing_is_short():
    assert shares_of(LIMIT_WANTED).open_files == OPEN_FILES_MAX
    assert shares_of(LIMIT_WANTED).connections > 5000
    assert shares_of(LIMIT_WANTED - 4).open_files < OPEN_FILES_MAX


def test_without_a_limit_there_is_none():
    shares = shares_of(resource.RLIM_INFINITY)
    assert (shares.open_files, shares.connections) == (OPEN_FILES_MAX, NO_LIMIT)


def test_the_soft_limit_becomes_the_hard_one():
    program = """if True:
        import resource
        from logfleet.io.descriptors import own, raise_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
        assert raise_limit() is None
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, 300)
        assert own().limit == 300
        assert raise_limit() is None
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_limit_that_cannot_be_raised_gives_the_reason(monkeypatch):
    def refuse(_which, _limits):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (100, 300))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == "not allowed to raise maximum limit"

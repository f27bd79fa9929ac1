from logfleet.wire.errors import ErrorCode


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert ErrorCode(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_stale_metadata_is_always_retriable() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.stale_metadata
    assert all(code.retriable for code in ErrorCode if code.stale_metadata)
    assert ErrorCode.REQUEST_TIMED_OUT.retriable
    assert not ErrorCode.REQUEST_TIMED_OUT.stale_metadata
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.INVALID_REQUEST.retriable


def test_codes_leave_no_hole() -> None:
    assert sorted(ErrorCode) == list(range(-1, 137))

"""Kafka's rows for users without SCRAM credentials: in this version no user has any."""

from logfleet.node.handlers.scram_credentials import describe_scram_credentials
from logfleet.wire.codec import encode
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import DescribeUserScramCredentialsRequest as Request
from logfleet.wire.messages import DescribeUserScramCredentialsResponse as Response


def described(host, *names: str) -> Response:
    users = [Request.UserName(name=name) for name in names]
    answer = describe_scram_credentials(host, Request(users=users), host.context(0))
    encode(answer, 0)
    return answer


def test_nobody_has_credentials(host) -> None:
    for answer in (
        described(host),
        describe_scram_credentials(host, Request(users=None), host.context(0)),
    ):
        assert (answer.error_code, answer.error_message, answer.results) == (0, "", [])


def test_every_requested_user_is_unknown(host) -> None:
    answer = described(host, "a", "twice", "twice")
    assert answer.error_code == 0
    assert [(row.user, row.error_code, row.error_message) for row in answer.results] == [
        (
            "a",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: a",
        ),
        (
            "twice",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: twice",
        ),
    ]

"""DescribeUserScramCredentials, as in a Kafka whose users have none; kafka-configs asks for all.

Source: ScramImage.describe.
"""

from collections import Counter
from typing import Any

from logfleet.node.dispatch import Handler, RequestContext
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)


def describe_scram_credentials(
    _broker: object, request: DescribeUserScramCredentialsRequest, _context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    times = Counter(user.name for user in request.users or ())
    row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    return DescribeUserScramCredentialsResponse(
        error_message="",  # Kafka sends an empty text here, not null
        results=[
            row(
                user=name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message=f"Attempt to describe a user credential that does not exist: {name}",
            )
            if count == 1
            else row(
                user=name,
                error_code=ErrorCode.DUPLICATE_RESOURCE,
                error_message="Cannot describe SCRAM credentials for the same user twice "
                f"in a single request: {name}",
            )
            for name, count in times.items()
        ],
    )


HANDLERS: dict[type, Handler[Any]] = {
    DescribeUserScramCredentialsRequest: describe_scram_credentials
}

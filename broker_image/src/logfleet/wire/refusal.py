"""Why a request changes nothing, as every room below the handlers says it."""

import msgspec

from logfleet.wire.errors import ErrorCode


class Refusal(msgspec.Struct, frozen=True):
    """Why a request changes nothing: Kafka's code and a sentence for the user."""

    error: ErrorCode
    message: str

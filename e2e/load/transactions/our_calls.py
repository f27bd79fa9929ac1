"""What a call of our transactional producer asks its caller to do."""

from collections.abc import Awaitable, Callable

from logfleet.client.errors import AbortRequired, ClientError, OutcomeUnknown, ProducerFailed


async def repeatedly(call: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call while that may help. Raises ClientError."""
    while True:
        try:
            await call()
        except (ProducerFailed, AbortRequired):
            raise
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, ClientError) and not error.__cause__.retriable:
                raise
        except ClientError as error:
            if not error.retriable:
                raise
        else:
            return

"""Under which producer id and epoch a producer writes (KIP-98)."""

import asyncio
from collections.abc import Collection
from typing import Protocol

from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, raise_for
from logfleet.client.offsets import TopicPartition
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.messages import InitProducerIdRequest, InitProducerIdResponse


class Identities(Protocol):
    """Gives a producer its identities: producer id and epoch.

    transactional_id: None without transactions. produce_version_max: of Produce.
    """

    transactional_id: str | None

    @property
    def produce_version_max(self) -> int: ...

    async def current(self, partitions: Collection[TopicPartition]) -> tuple[int, int]:
        """The identity under which to write to these partitions now. Raises ClientError."""

    def gave_up(self, error: ClientError, *, was_stamped: bool) -> None:
        """Records have failed for good.

        was_stamped: they had sequence numbers, which the broker may have used or not.
        """


class Idempotence:
    """An identity from any broker, until records fail: then the next one."""

    transactional_id = None
    produce_version_max = API_BY_NAME["Produce"].max_version

    def __init__(self, client: Client) -> None:
        self._client = client
        self._identity: tuple[int, int] | None = None
        self._identifying = asyncio.Lock()

    async def current(self, partitions: Collection[TopicPartition]) -> tuple[int, int]:
        """The same for all partitions. Raises ClientError."""
        del partitions
        async with self._identifying:
            if self._identity is None:
                connection = await self._client.any()
                response = await connection.request(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
                    InitProducerIdResponse,
                    timeout_ms=self._client.request_timeout_ms,
                )
                raise_for(response.error_code, subject="producer id")
                self._identity = (response.producer_id, response.producer_epoch)
            return self._identity

    def gave_up(self, error: ClientError, *, was_stamped: bool) -> None:
        """Use another producer id if this one's sequence is uncertain."""
        del error
        if was_stamped:
            self._identity = None

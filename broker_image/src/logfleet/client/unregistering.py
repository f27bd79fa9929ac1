"""UnregisterBroker (KIP-631): a broker that will not come back is forgotten."""

from logfleet.client.cluster import Client
from logfleet.client.errors import raise_for
from logfleet.wire.messages import UnregisterBrokerRequest, UnregisterBrokerResponse


async def unregister_broker(client: Client, broker_id: int) -> None:
    """Raises KafkaError: INVALID_REQUEST while it runs or holds replicas, BROKER_ID_NOT_REGISTERED if nobody knows it."""
    request = UnregisterBrokerRequest(broker_id=broker_id)

    async def call() -> None:
        connection = await client.any()
        answer = await connection.request(
            request, UnregisterBrokerResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(answer.error_code, answer.error_message, subject=f"broker {broker_id}")

    await client.retrying(call)

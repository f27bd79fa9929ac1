"""UnregisterBroker (KIP-631): removes the registration of a broker that will not come back."""

from logfleet.client.cluster import Client
from logfleet.client.errors import raise_for
from logfleet.wire.messages import UnregisterBrokerRequest, UnregisterBrokerResponse


async def unregister_broker(client: Client, broker_id: int) -> None:
    """Raises KafkaError: INVALID_REQUEST (it runs or has replicas), BROKER_ID_NOT_REGISTERED."""
    request = UnregisterBrokerRequest(broker_id=broker_id)

    async def call() -> None:
        connection = await client.any()
        response = await connection.request(
            request, UnregisterBrokerResponse, timeout_ms=client.request_timeout_ms
        )
        raise_for(response.error_code, response.error_message, subject=f"broker {broker_id}")

    await client.retrying(call)

"""UnregisterBroker (KIP-631), done by the controller."""

from typing import Final

from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.unregistering import unregister
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.running.access import ControllerAccess, ControllerWork
from logfleet.controller.terms.operations import TermDecision
from logfleet.metadata.image import ClusterImage
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import UnregisterBrokerRequest, UnregisterBrokerResponse
from logfleet.wire.refusal import Refusal


async def _unregister(
    access: ControllerAccess, request: UnregisterBrokerRequest, _version: int
) -> UnregisterBrokerResponse:
    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[Refusal | None]:
        steps = unregister(image, request.broker_id)
        if isinstance(steps, Refusal):
            return TermDecision((), steps)
        return TermDecision(pack(epoch, steps), None)

    refusal = await access.controller.submit(decide)
    if isinstance(refusal, Refusal):
        return _refuse(request, 0, refusal)
    return UnregisterBrokerResponse(error_message=None)


def _refuse(
    _request: UnregisterBrokerRequest, _version: int, refusal: Refusal
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=refusal.error, error_message=refusal.message)


def _is_shown(
    image: ClusterImage, request: UnregisterBrokerRequest, answer: UnregisterBrokerResponse
) -> bool:
    return answer.error_code != ErrorCode.NONE or request.broker_id not in image.fences


UNREGISTER: Final = ControllerWork(_unregister, _refuse, None, _is_shown)

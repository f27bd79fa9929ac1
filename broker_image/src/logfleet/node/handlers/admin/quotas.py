"""DescribeClientQuotas, answered by this broker, and AlterClientQuotas, done by the controller.

KIP-546.
"""

from typing import Final

from logfleet.config.topic import BrokerLayers
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.running.access import ControllerAccess, ControllerWork
from logfleet.controller.terms.operations import TermDecision
from logfleet.metadata.image import ClusterImage, Quotas
from logfleet.metadata.kinds.quotas import QuotaEntity
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.rooms import Rooms
from logfleet.quotas.entities import (
    FilterComponent,
    QuotaAlteration,
    alter_quotas,
    describe_quotas,
    entity_of,
)
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from logfleet.wire.refusal import Refusal

_Described = DescribeClientQuotasResponse.EntryData
_Altered = AlterClientQuotasResponse.EntryData
_Answers = dict[QuotaEntity, Refusal | None]


def describe_client_quotas(
    rooms: Rooms, request: DescribeClientQuotasRequest, _context: RequestContext
) -> DescribeClientQuotasResponse:
    components = [
        FilterComponent(each.entity_type, each.match_type, each.match)
        for each in request.components
    ]
    described = describe_quotas(rooms.metadata.image.quotas, components, strict=request.strict)
    if isinstance(described, Refusal):
        return DescribeClientQuotasResponse(
            error_code=described.error, error_message=described.message, entries=None
        )
    entries = [
        _Described(
            entity=[
                DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity
            ],
            values=[
                DescribeClientQuotasResponse.ValueData(key=key, value=value)
                for key, value in values.items()
            ],
        )
        for entity, values in described
    ]
    # as in Kafka, empty and not null
    return DescribeClientQuotasResponse(error_message="", entries=entries)


async def _alter(
    access: ControllerAccess, request: AlterClientQuotasRequest, _version: int
) -> AlterClientQuotasResponse:
    alterations = [
        QuotaAlteration(
            _entity(entry),
            tuple((each.key, None if each.remove else each.value) for each in entry.ops),
        )
        for entry in request.entries
    ]

    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[_Answers]:
        steps, answers = alter_quotas(image.quotas, alterations)
        return TermDecision(() if request.validate_only else pack(epoch, steps), answers)

    answers = await access.controller.submit(decide)
    if isinstance(answers, Refusal):
        return _refuse(request, 0, answers)
    return _answer(answers)


def _entity(entry: AlterClientQuotasRequest.EntryData) -> QuotaEntity:
    return entity_of((each.entity_type, each.entity_name) for each in entry.entity)


def _answer(answers: _Answers) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            _Altered(
                error_code=refusal.error if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
            )
            for entity, refusal in answers.items()
        ]
    )


def _refuse(
    request: AlterClientQuotasRequest, _version: int, refusal: Refusal
) -> AlterClientQuotasResponse:
    return _answer({_entity(entry): refusal for entry in request.entries})


def _is_shown(
    image: ClusterImage, request: AlterClientQuotasRequest, answer: AlterClientQuotasResponse
) -> bool:
    """Whether the image has the limits of all entities that were not refused."""
    if request.validate_only:
        return True
    done = {
        entity_of((each.entity_type, each.entity_name) for each in entry.entity)
        for entry in answer.entries
        if not entry.error_code
    }
    return all(
        image.quotas.get(_entity(entry), Quotas({})).values.get(each.key)
        == (None if each.remove else each.value)
        for entry in request.entries
        if _entity(entry) in done
        for each in entry.ops
    )


ALTER: Final = ControllerWork(_alter, _refuse, None, _is_shown)

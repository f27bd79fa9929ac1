"""Control of the cluster: the controller, if this broker is elected, and the access to it."""

from dataclasses import dataclass

from logfleet.config.broker import BrokerConfig
from logfleet.controller.running.access import ControllerAccess, UntilApplied
from logfleet.controller.running.log_ends import LogEndsClient
from logfleet.controller.running.loop import ControllerLoop
from logfleet.metadata.kinds.cluster import ControllerValue
from logfleet.node.cluster.producer_id_pool import ProducerIdPool
from logfleet.node.lifetime import Lifetime
from logfleet.node.topic_creator import CreateOne, TopicCreator
from logfleet.node.world import World
from logfleet.quotas.client_quotas import ClientQuotas
from logfleet.store.loader import MetadataLoader
from logfleet.telemetry.decisions import Decisions


@dataclass(frozen=True, slots=True)
class Control:
    """access: sends changes to the controller, wherever it is."""

    controller: ControllerLoop
    access: ControllerAccess
    topic_creator: TopicCreator
    producer_ids: ProducerIdPool


def open_control(
    world: World,
    config: BrokerConfig,
    life: Lifetime,
    *,
    incarnation: str,
    metadata: MetadataLoader,
    quotas: ClientQuotas,
    until_applied: UntilApplied,
    create_one: CreateOne,
    decisions: Decisions,
) -> Control:
    """Stand for election from now on.

    until_applied: see ControllerAccess. incarnation: of this start of the broker.
    """
    controller = ControllerLoop(
        world.store,
        metadata,
        ControllerValue(config.node_id, incarnation),
        config.static,
        decisions,
        query_log_ends=LogEndsClient(config).query,
    )
    life.spawn("controller", controller.run())
    access = ControllerAccess(
        config, metadata, controller, quotas.mutation, until_applied=until_applied
    )
    life.closing.callback(access.close)
    topic_creator = TopicCreator(access, create_one)
    life.closing.push_async_callback(topic_creator.close)
    producer_ids = ProducerIdPool(world.store)
    life.spawn("producer ids", producer_ids.run())
    return Control(controller, access, topic_creator, producer_ids)

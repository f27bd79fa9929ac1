import logging
from collections.abc import Iterator

import pytest
from logfleet.wire.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest

pytestmark = pytest.mark.asyncio
LOGGER, GROUP = 8, 32
SET, DELETE = 0, 1
OURS = "logfleet.node.handlers.test"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """The levels of this process are its own again afterwards."""
    root, ours = logging.getLogger(), logging.getLogger(OURS)
    before = root.level, ours.level
    yield
    for logger, level in zip((root, ours), before, strict=True):
        logger.setLevel(level)


def resource(name: str, *changes, kind: int = LOGGER):
    request = IncrementalAlterConfigsRequest
    return request.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            request.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


async def alter(node, *resources, validate_only: bool = False):
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [
        (row.resource_type, row.resource_name, row.error_code)
        for row in (await node.ask(request)).responses
    ]


async def described(node) -> dict[str, str]:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=LOGGER, resource_name="1", configuration_keys=None
    )
    (result,) = (await node.ask(DescribeConfigsRequest(resources=[wanted]))).results
    assert {(row.config_source, row.config_type, row.read_only) for row in result.configs} == {
        (6, 0, False)
    }
    return {row.name: row.value for row in result.configs}


async def test_levels_change_at_once_and_are_reported(node):
    change = resource("1", ("root", SET, "ERROR"), (OURS, SET, "TRACE"))
    assert await alter(node, change, validate_only=True) == [(LOGGER, "1", 0)]
    assert logging.root.level != logging.ERROR
    assert await alter(node, change) == [(LOGGER, "1", 0)]
    levels = await described(node)
    assert (levels["root"], levels[OURS]) == ("ERROR", "TRACE")
    assert {name.partition(".")[0] for name in levels} == {"root", "logfleet"}
    assert await alter(node, resource("1", (OURS, DELETE, None))) == [(LOGGER, "1", 0)]
    assert (await described(node))[OURS] == "ERROR"


async def test_loggers_and_others_are_answered_in_the_requests_order(node):
    answer = await alter(
        node,
        resource("1", ("root", SET, "WARN")),
        resource("g", ("share.isolation.level", SET, "read_committed"), kind=GROUP),
        resource("2", ("root", SET, "WARN")),
    )
    assert answer == [(LOGGER, "1", 0), (GROUP, "g", 0), (LOGGER, "2", 42)]
    assert node.image.configs_of_group("g").values == {"share.isolation.level": "read_committed"}


async def test_a_broker_that_is_named_twice_is_refused(node):
    one = resource("1", ("root", SET, "WARN"))
    assert await alter(node, one, one) == [(LOGGER, "1", 42)] * 2

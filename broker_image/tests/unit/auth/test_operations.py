import pytest
from logfleet.auth.operations import OPERATIONS_ON, ResourceType


@pytest.mark.parametrize(
    "kind, bits",
    [(ResourceType.TOPIC, 3576), (ResourceType.GROUP, 3400), (ResourceType.CLUSTER, 8096)],
)
def test_the_operations_on_each_type_are_those_of_kafka(kind: ResourceType, bits: int) -> None:
    assert sum(1 << operation for operation in OPERATIONS_ON[kind]) == bits


def test_every_type_has_operations() -> None:
    assert set(OPERATIONS_ON) == set(ResourceType)

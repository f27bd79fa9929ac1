"""When certificates of etcd are renewed: by what they say themselves."""

import base64
from datetime import timedelta

import pytest
from logfleet_operator import names
from logfleet_operator.clusters import certificates

from .operation import Operation, at_rest, cluster, why
from .world import Manifest, World

pytestmark = pytest.mark.asyncio

LEAVES = ("fleet-etcd-server", "fleet-etcd-client")
DAY_S = 86_400


def annotate(world: World, end: str | None) -> None:
    """Somebody takes away, or writes, when the certificates end."""
    for name in world.named("Secret"):
        annotations = world.one("Secret", name)["metadata"]["annotations"]
        annotations.pop(names.EXPIRY_ANNOTATION, None)
        if end is not None:
            annotations[names.EXPIRY_ANNOTATION] = end


def leaves(world: World) -> list[str]:
    return [world.one("Secret", name)["data"]["tls.crt"] for name in LEAVES]


@pytest.mark.parametrize("end", [None, "2999-01-01T00:00:00Z", "tomorrow"])
async def test_what_an_annotation_says_does_not_keep_a_certificate_from_being_renewed(
    end: str | None,
) -> None:
    world, operation = await at_rest()
    before = leaves(world)
    annotate(world, end)
    world.now_s += 500 * DAY_S
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    for old, new in zip(before, leaves(world), strict=True):
        assert new != old
    replaced = [call for call in world.calls if call.startswith(("evict", "delete"))]
    assert replaced == [f"evict Pod fleet-main-{zone}-0" for zone in "abc"]


@pytest.mark.parametrize("end", [None, "2026-01-02T00:00:00Z"])
async def test_nor_does_it_renew_one_or_replace_a_broker(end: str | None) -> None:
    world, operation = await at_rest()
    before = leaves(world)
    annotate(world, end)
    await operation.until_at_rest()
    assert leaves(world) == before
    assert not any(call.startswith(("evict", "delete")) for call in world.calls)
    template = world.one("StatefulSet", "fleet-main-a")["spec"]["template"]["metadata"]
    ends = World().now() + timedelta(days=certificates.LEAF_DAYS)
    assert template["annotations"][names.CREDENTIALS_ANNOTATION] == f"{ends:%Y-%m-%dT%H:%M:%SZ}"


async def test_what_is_no_certificate_is_issued_anew() -> None:
    world, operation = await at_rest()
    garbage = base64.b64encode(b"garbage").decode()
    world.one("Secret", "fleet-etcd-server")["data"]["tls.crt"] = garbage
    world.one("Secret", "fleet-etcd-client")["data"].pop("tls.crt")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    for text in leaves(world):
        assert base64.b64decode(text).startswith(b"-----BEGIN CERTIFICATE")


def another_s(name: str, days: int, world: World) -> Manifest:
    """A Secret that somebody else keeps a certificate in."""
    made = certificates.make_authority("somebody", world.now() - timedelta(days=3650 - days))
    data = {"tls.crt": made.certificate, "tls.key": made.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "logs"},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(pem).decode() for key, pem in data.items()},
    }


@pytest.mark.parametrize("days", [60, 900])
async def test_a_certificate_of_somebody_else_is_never_replaced(days: int) -> None:
    world = World()
    theirs = another_s("fleet-etcd-client", days, world)
    world.put(theirs)
    world.put(cluster())
    operation = Operation(world)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "Secret fleet-etcd-client exists and is not this Cluster's" in why(world)
    found = world.one("Secret", "fleet-etcd-client")
    assert found["data"] == theirs["data"]
    assert "ownerReferences" not in found["metadata"]
    world.remove("Secret", "fleet-etcd-client")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_no_broker_is_replaced_for_a_certificate_that_it_does_not_mount() -> None:
    world, operation = await at_rest(metadata={"endpoints": ["etcd.infra:2379"]})
    world.put(another_s("fleet-etcd-client", 60, world))
    await operation.until_at_rest()
    assert not [call for call in world.calls if call.startswith("evict")]

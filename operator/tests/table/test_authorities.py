"""The authority of a managed etcd when two operators work for a moment, and what it issued."""

import base64

import pytest
from cryptography import x509
from logfleet_operator.clusters import certificates

from .operation import Operation, at_rest, cluster
from .world import Manifest, World

pytestmark = pytest.mark.asyncio

LEAVES = ("fleet-etcd-server", "fleet-etcd-client")


def certificate(world: World, secret: str, key: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(
        base64.b64decode(world.one("Secret", secret)["data"][key])
    )


def of_one_authority(world: World) -> bool:
    authority = certificate(world, "fleet-etcd-ca", "tls.crt")
    for leaf in LEAVES:
        certificate(world, leaf, "tls.crt").verify_directly_issued_by(authority)
    return all(certificate(world, leaf, "ca.crt") == authority for leaf in LEAVES)


def another_authority(world: World, live: Manifest) -> Manifest:
    """As `live`, by another operator that works for a moment as well."""
    made = certificates.make_authority("another", world.now())
    pem = {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": made.certificate}
    return {**live, "data": {name: base64.b64encode(text).decode() for name, text in pem.items()}}


async def test_an_authority_that_another_operator_made_meanwhile_is_not_replaced() -> None:
    world = World()
    world.put(cluster())
    theirs: list[Manifest] = []

    def make_first(number: int) -> None:
        makes = world.calls[number] in {"create Secret fleet-etcd-ca", "apply Secret fleet-etcd-ca"}
        if makes and not theirs:
            empty = {"kind": "Secret", "metadata": {"name": "fleet-etcd-ca"}}
            theirs.append(world.put(another_authority(world, empty)))

    world.before_call = make_first
    await Operation(world).until_at_rest()
    assert theirs
    assert world.one("Secret", "fleet-etcd-ca")["data"] == theirs[0]["data"]
    assert of_one_authority(world)
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


async def test_while_etcd_has_not_begun_certificates_of_another_authority_are_issued_anew() -> None:
    world = World()
    world.put(cluster())
    changed: list[Manifest] = []

    def change(number: int) -> None:
        if world.calls[number] == "apply StatefulSet fleet-etcd" and not changed:
            changed.append(
                world.touch(another_authority(world, world.one("Secret", "fleet-etcd-ca")))
            )

    world.before_call = change
    await Operation(world).until_at_rest()
    assert changed
    assert world.one("Secret", "fleet-etcd-ca")["data"] == changed[0]["data"]
    assert of_one_authority(world)


async def test_an_etcd_that_runs_keeps_its_certificates() -> None:
    """Its members read the authority that they trust only when they start."""
    world, operation = await at_rest()
    before = [world.one("Secret", leaf) for leaf in LEAVES]
    world.touch(another_authority(world, world.one("Secret", "fleet-etcd-ca")))
    await operation.until_at_rest()
    assert [world.one("Secret", leaf) for leaf in LEAVES] == before

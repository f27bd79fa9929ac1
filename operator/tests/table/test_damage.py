"""Objects that somebody edited so that the operator cannot go on: the status reports it."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from logfleet_operator import names
from logfleet_operator.clusters import certificates

from .operation import at_rest, why
from .world import World

pytestmark = pytest.mark.asyncio


def rsa_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def replace(world: World, kind: str, name: str, **fields: Any) -> None:
    """Somebody writes these fields of an object's `data` or `spec`; None: takes them away."""
    live = world.one(kind, name)
    part = "spec" if "spec" in live else "data"
    changed = {**live[part], **fields}
    kept = {key: value for key, value in changed.items() if value is not None}
    world.touch({**live, "metadata": {**live["metadata"]}, part: kept})


def other_authority() -> certificates.Issued:
    return certificates.make_authority("another", World().now())


@pytest.mark.parametrize(
    "fields",
    [
        {"tls.key": rsa_key()},
        {"tls.key": other_authority().key},
        {"tls.crt": b"garbage"},
        {"tls.crt": None},
        {"tls.crt": None, "tls.key": None, "ca.crt": None},
    ],
)
async def test_a_damaged_authority_is_told_when_a_certificate_is_due(
    fields: dict[str, bytes | None],
) -> None:
    world, operation = await at_rest()
    before = dict(world.one("Secret", "fleet-etcd-ca")["data"])
    encoded = {
        key: None if text is None else base64.b64encode(text).decode()
        for key, text in fields.items()
    }
    replace(world, "Secret", "fleet-etcd-ca", **encoded)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    world.remove("Secret", "fleet-etcd-client")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "Secret fleet-etcd-ca cannot sign fleet-etcd-client" in why(world)
    assert "restore it from a backup" in why(world)
    replace(world, "Secret", "fleet-etcd-ca", **before)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")


@pytest.mark.parametrize(
    "fields",
    [
        {"ranges": "[{"},
        {"ranges": '[{"pool": "main"}]'},
        {"ranges": None},
        {"etcd": None},
        {"etcd": "yes"},
        {"ranges": None, "etcd": None},
    ],
)
async def test_a_damaged_record_is_told_and_made_anew_once_it_is_removed(
    fields: dict[str, str | None],
) -> None:
    world, operation = await at_rest()
    before = world.one("ConfigMap", "fleet-record")["data"]
    replace(world, "ConfigMap", "fleet-record", **fields)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "ConfigMap fleet-record" in why(world)
    assert "or remove it" in why(world)
    world.remove("ConfigMap", "fleet-record")
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.one("ConfigMap", "fleet-record")["data"] == before


async def test_a_volume_claim_whose_label_is_no_id_is_named() -> None:
    world, operation = await at_rest()
    labels = world.one("PersistentVolumeClaim", "data-fleet-main-b-0")["metadata"]["labels"]
    labels[names.BASE_LABEL] = "many"
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("False", "Conflict")
    assert "PersistentVolumeClaim data-fleet-main-b-0" in why(world)


async def test_a_set_that_lost_the_label_of_its_pool_gets_it_back() -> None:
    world, operation = await at_rest()
    del world.one("StatefulSet", "fleet-main-a")["metadata"]["labels"][names.POOL_LABEL]
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert names.POOL_LABEL in world.one("StatefulSet", "fleet-main-a")["metadata"]["labels"]


@pytest.mark.parametrize("value", ["50%", None])
async def test_a_damaged_budget_is_written_anew(value: str | None) -> None:
    world, operation = await at_rest()
    replace(world, "PodDisruptionBudget", "fleet-brokers", minAvailable=value)
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.one("PodDisruptionBudget", "fleet-brokers")["spec"]["minAvailable"] == 2


async def test_a_port_that_is_no_number_is_written_anew() -> None:
    world, operation = await at_rest()
    before = world.one("ConfigMap", "fleet-config")["data"]
    replace(world, "ConfigMap", "fleet-config", **{"external.0": "many"})
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")
    assert world.one("ConfigMap", "fleet-config")["data"] == before


async def test_whatever_else_breaks_ends_ready_until_it_works_again() -> None:
    world, operation = await at_rest()

    def break_lists(number: int) -> None:
        if world.calls[number] == "list StatefulSet":
            raise KeyError("items")

    world.before_call = break_lists
    for _ in range(3):
        await operation.round()
    assert world.ready("Cluster", "fleet") == ("False", "Progressing")
    assert why(world) == "the operator cannot go on: KeyError('items')"
    assert operation.worker.queue.retried > 0
    world.before_call = lambda _: None
    await operation.until_at_rest()
    assert world.ready("Cluster", "fleet") == ("True", "Ready")

"""A member of a real etcd that lost its data, taken out and in again with the operator's own client and certificates."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from logfleet_operator.clusters import certificates
from logfleet_operator.clusters.etcd_client import Access, EtcdClients, EtcdUnavailable

from e2e.harness.etcd import SPEED, TlsPaths, etcd_binaries, etcd_cluster
from e2e.harness.kube.kubernetes import wait_for


@pytest.fixture
def pems(tmp_path: Path) -> tuple[TlsPaths, Access]:
    """What a server, and what its client shows."""
    now = datetime.now(UTC)
    authority = certificates.make_authority("test", now)
    signer = authority.certificate, authority.key
    server = certificates.issue(*signer, "server", ["localhost"], now)
    client = certificates.issue(*signer, "client", [], now)
    paths = TlsPaths(*(tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key")))
    paths.ca.write_bytes(authority.certificate)
    paths.certificate.write_bytes(server.certificate)
    paths.key.write_bytes(server.key)
    return paths, Access((), authority.certificate, client.certificate, client.key)


def test_a_member_that_lost_its_data_joins_anew(
    tmp_path: Path, pems: tuple[TlsPaths, Access]
) -> None:
    tls, shown = pems
    etcd = EtcdClients(None)
    with asyncio.Runner() as runner, etcd_cluster(etcd_binaries()[0], tmp_path, 3, tls) as servers:
        lost, others = servers[1], (servers[0], servers[2])
        endpoints = tuple(f"https://localhost:{each.port}" for each in (lost, *others))
        access = Access(endpoints, shown.authority, shown.certificate, shown.key)
        before = {each.name: each for each in runner.run(etcd.members(access))}
        assert {each.peer_url for each in before.values()} == {each.peer_url for each in servers}

        lost.kill()
        lost.wipe()
        gone = before[lost.name].id

        def done() -> bool:
            """As the operator does it: what was not answered, or refused for now, is looked at again."""
            try:
                listed = runner.run(etcd.members(access))
                if gone in [each.id for each in listed]:
                    runner.run(etcd.remove(access, gone))
                elif lost.peer_url not in [each.peer_url for each in listed]:
                    runner.run(etcd.add(access, lost.peer_url))
                else:
                    return True
            except EtcdUnavailable as error:
                refusals.append(str(error))
            return False

        refusals: list[str] = []
        wait_for("the lost member to be removed and added", done, within_s=60)
        # strict-reconfig-check: a change needs a majority that was connected for 5 s
        assert any("unhealthy cluster" in said for said in refusals)
        (added,) = (each for each in runner.run(etcd.members(access)) if not each.name)
        assert (added.peer_url, added.id != gone) == (lost.peer_url, True)
        with pytest.raises(EtcdUnavailable, match="not enough started members"):
            runner.run(etcd.add(access, lost.peer_url))

        lost.speed = [*SPEED, "--initial-cluster-state=existing"]
        lost.start()
        after = {each.name: each.id for each in runner.run(etcd.members(access))}
        assert after == {name: each.id for name, each in before.items()} | {lost.name: added.id}

        # The majority now needs it: it holds what the others do.
        others[0].kill()

        def serves() -> bool:
            """By a linearizable read, which a new leader answers."""
            try:
                return len(runner.run(etcd.members(access))) == 3
            except EtcdUnavailable:
                return False

        wait_for("two of three to serve, the new one among them", serves, within_s=30)


def test_members_tell_their_size_and_are_defragmented(
    tmp_path: Path, pems: tuple[TlsPaths, Access]
) -> None:
    tls, shown = pems
    etcd = EtcdClients(None)
    with (
        asyncio.Runner() as runner,
        etcd_cluster(etcd_binaries()[0], tmp_path, 3, tls) as servers,
    ):
        endpoints = tuple(f"https://localhost:{each.port}" for each in servers)
        access = Access(endpoints, shown.authority, shown.certificate, shown.key)
        before = [runner.run(etcd.status(access, each)) for each in endpoints]
        assert sum(each.leads for each in before) == 1
        assert all(0 < each.used <= each.size for each in before)
        for endpoint in endpoints:
            runner.run(etcd.defragment(access, endpoint))
        after = [runner.run(etcd.status(access, each)) for each in endpoints]
        assert [each.endpoint for each in after] == list(endpoints)
        assert runner.run(etcd.has_no_space(access)) is False
        runner.run(etcd.disarm(access))


def test_without_a_majority_it_says_so(tmp_path: Path, pems: tuple[TlsPaths, Access]) -> None:
    tls, shown = pems
    with asyncio.Runner() as runner, etcd_cluster(etcd_binaries()[0], tmp_path, 3, tls) as servers:
        alone = (f"https://localhost:{servers[0].port}",)
        access = Access(alone, shown.authority, shown.certificate, shown.key)
        listed = runner.run(EtcdClients(None).members(access))
        for server in servers[1:]:
            server.kill()
        with pytest.raises(EtcdUnavailable):
            runner.run(EtcdClients(None).remove(access, listed[0].id))

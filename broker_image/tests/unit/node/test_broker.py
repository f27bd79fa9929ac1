"""A whole broker in this process: starts, serves, refuses what it must, stops in order."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from logfleet.config.broker import BrokerConfig, broker_config
from logfleet.config.description import describe_broker
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers import fencing
from logfleet.controller.brokers.fencing import newcomers
from logfleet.controller.terms import convergence, slices
from logfleet.io.files import File, PosixFiles
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import Broker as RegisteredBroker
from logfleet.metadata.image import ClusterImage
from logfleet.node import broker as broker_module
from logfleet.node.broker import Broker, StartError
from logfleet.node.cluster import failsafe
from logfleet.node.metrics.admin_http import AdminHttp
from logfleet.node.partitions import local_partitions
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    MetadataRequest,
)
from structlog.testing import capture_logs

from broker_image.tests.unit.node.broker_rig import ask, config, registered_again
from broker_image.tests.unit.waiting import Until

pytestmark = pytest.mark.asyncio


async def test_it_serves_and_keeps_its_identity_over_restarts(tmp_path: Path) -> None:
    clusters = []
    for _ in range(2):
        async with Broker(config(tmp_path)) as broker:
            (listener,) = broker.opened.listeners.all
            answer = await ask(listener.port, ApiVersionsRequest(), 2)
            served = {api.key for api in broker.opened.dispatcher.apis}
            assert {row.api_key for row in answer.api_keys} <= served
            assert broker.image.brokers[1].is_active
            assert broker.image.brokers[1].value.listeners[0].port == listener.port
            assert broker.failure is None
            clusters.append(broker.cluster_id)
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert clusters[0] == clusters[1]


async def test_the_next_start_knows_which_registration_closed_the_logs(
    tmp_path: Path, until: Until
) -> None:
    epochs = []
    for _ in range(2):
        async with Broker(config(tmp_path)) as broker:
            registered = broker.image.brokers[broker.config.node_id]
            epochs.append(registered.epoch)
            assert registered.value.previous_epoch == (epochs[-2] if epochs[:-1] else -1)
            await until(lambda: broker.rooms.disks.log_dirs.previous_epoch == epochs[-1])
            assert broker.rooms.disks.log_dirs.lost_nothing
    marker = (tmp_path / "data" / ".kafka_cleanshutdown").read_text()
    assert marker == f'{{"version":0,"brokerEpoch":{epochs[-1]}}}'


class LateController:
    """It makes no broker active until `admits` is set and the image changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.admits = False
        monkeypatch.setattr(fencing, "newcomers", self.newcomers)
        monkeypatch.setattr(convergence, "newcomers", self.newcomers)
        monkeypatch.setattr(slices, "newcomers", self.newcomers)
        monkeypatch.setattr(broker_module, "LEADING_S_MAX", 0.2)

    def newcomers(self, image: ClusterImage) -> list[RegisteredBroker]:
        return newcomers(image) if self.admits else []


async def lose_registration(broker: Broker, until: Until) -> None:
    """Its lease ends, and it registers again."""
    former = broker.opened.membership.registration
    assert former is not None
    await former.lease.revoke()
    await until(lambda: broker.opened.membership.registration not in {None, former})


@pytest.mark.parametrize("registrations", [1, 2])
async def test_however_late_it_is_active_what_it_lacked_before_does_not_count_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until, registrations: int
) -> None:
    """After a power cut of the site brokers wait for a controller longer than a start does."""
    controller = LateController(monkeypatch)
    async with Broker(config(tmp_path)) as broker:
        for _ in range(registrations - 1):
            await lose_registration(broker, until)
        registered = broker.opened.membership.registration
        assert registered is not None
        await until(lambda: broker.image.revision >= registered.epoch)
        assert broker.image.brokers[1].value.unclean, "its directory was empty"
        assert broker.image.brokers[1].is_new
        controller.admits = True
        broker.opened.membership.update(rack="moved")
        await until(lambda: not broker.image.brokers[1].value.unclean)
        assert broker.image.brokers[1].is_active
    marker = (tmp_path / "data" / ".kafka_cleanshutdown").read_text()
    assert marker == f'{{"version":0,"brokerEpoch":{registered.epoch}}}'


async def test_a_registration_of_the_same_process_names_its_last_active_one(
    tmp_path: Path, until: Until
) -> None:
    async with Broker(config(tmp_path)) as broker:
        epochs = []
        for _ in range(3):
            await until(lambda: 1 in broker.image.brokers and broker.image.brokers[1].is_active)
            registered = broker.opened.membership.registration
            assert registered is not None
            epochs.append((broker.image.brokers[1].value.previous_epoch, registered.epoch))
            await lose_registration(broker, until)
        assert [previous for previous, _ in epochs[1:]] == [epoch for _, epoch in epochs[:-1]]


async def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"PLAINTEXT cannot listen on 127.0.0.1:{port}: .*"):
            await Broker(config(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}")).__aenter__()
        with pytest.raises(StartError, match="listener cannot listen"):
            await Broker(
                config(tmp_path, **{"logfleet.admin.listener": f"127.0.0.1:{port}"})
            ).__aenter__()


async def test_brokers_of_one_machine_have_an_admin_port_each_without_configuration(
    tmp_path: Path,
) -> None:
    def plain(name: str) -> BrokerConfig:
        return broker_config(
            {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / name)}
        )

    async with Broker(plain("a")) as first, Broker(plain("b")) as second:
        addresses = [broker.opened.observation.address for broker in (first, second)]
        assert len(set(addresses)) == 2
        for broker, address in zip((first, second), addresses, strict=True):
            described = describe_broker(BrokerLayers(broker.config.static))
            entries = {each.name: each.value for each in described}
            assert f"http://{entries['logfleet.admin.listener']}" == address


async def test_a_listener_has_its_port_before_the_default_admin_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": str(tmp_path / "data")}
    plain = broker_config(given)
    assert plain.logfleet_admin_listener is not None
    same = msgspec.structs.replace(plain.logfleet_admin_listener, port=port)
    async with Broker(msgspec.structs.replace(plain, logfleet_admin_listener=same)) as broker:
        assert broker.opened.listeners.all[0].port == port
        assert broker.opened.observation.address not in {None, f"http://127.0.0.1:{port}"}


async def test_without_ipv4_there_is_no_default_admin_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(_: AdminHttp, host: str, port: int) -> int:
        raise OSError(errno.EADDRNOTAVAIL, f"{host}:{port}")

    monkeypatch.setattr(AdminHttp, "start", start)
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    async with Broker(broker_config(given)) as broker:
        assert broker.opened.observation.address is None
        described = describe_broker(BrokerLayers(broker.config.static))
        assert {each.name: each.value for each in described}["logfleet.admin.listener"] == ""
    with pytest.raises(StartError, match=r"logfleet\.admin\.listener cannot listen"):
        await Broker(
            broker_config({**given, "logfleet.admin.listener": "127.0.0.1:9644"})
        ).__aenter__()


async def test_a_directory_in_use_is_one_sentence(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)):
        with pytest.raises(StartError) as caught:
            await Broker(config(tmp_path)).__aenter__()
    assert str(tmp_path / "data") in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_data_of_another_broker_or_cluster_is_left_alone(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)):
        pass
    before = sorted(path.name for path in (tmp_path / "data").iterdir())
    with pytest.raises(StartError, match="belongs to node"):
        await Broker(config(tmp_path, **{"node.id": "2"})).__aenter__()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before
    meta = tmp_path / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
    with pytest.raises(StartError, match="belongs to cluster"):
        await Broker(config(tmp_path)).__aenter__()
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == before


async def test_a_vital_task_that_ends_ends_the_broker(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:

        async def dies() -> None:
            raise RuntimeError("a bug")

        broker.life.spawn("part", dies())
        await broker.until_ended()
        assert broker.failure == "part: a bug"


async def test_what_it_leads_by_its_registration_is_answered_for_by_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failsafe, "CHECK_S", 3_600.0)
    async with Broker(config(tmp_path)) as broker:
        (listener,) = broker.opened.listeners.all
        registrar = broker.opened.membership._registrar
        assert registrar is not None
        first = registrar.registration
        assert first is not None
        tenure = broker.opened.dispatcher.lease
        assert tenure is not None
        assert tenure.deadline_s == first.lease.deadline_s
        monkeypatch.setattr(first.lease, "deadline_s", 0.0)
        with pytest.raises(asyncio.IncompleteReadError):
            await ask(listener.port, ListGroupsRequest(), 3)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        answer = await ask(listener.port, CreateTopicsRequest(topics=[topic], timeout_ms=9_000), 7)
        assert answer.topics[0].error_code == 0, "the store has made it"
        broker.opened.membership._on_lost()
        assert list(broker.rooms.partitions.led()) == []
        assert (await ask(listener.port, ListGroupsRequest(), 3)).groups == []


async def test_topics_are_made_led_and_kept_over_a_restart(tmp_path: Path) -> None:
    leader_epochs = []
    for _ in range(2):
        async with Broker(config(tmp_path)) as broker:
            (listener,) = broker.opened.listeners.all
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=3, replication_factor=1
            )
            await ask(listener.port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            answer = await ask(listener.port, MetadataRequest(topics=None), 12)
            (row,) = answer.topics
            assert [partition.leader_id for partition in row.partitions] == [1, 1, 1]
            leader_epochs.append({partition.leader_epoch for partition in row.partitions})
            await broker.rooms.hosting.local.until_applied(broker.image.revision)
            assert len(broker.rooms.partitions) == 3
            answer = await ask(listener.port, InitProducerIdRequest(transactional_id=None), 5)
            assert answer.error_code == 0
    assert leader_epochs == [{0}, {2}], "the old registration is fenced, the new one elected"


async def test_a_log_on_a_failed_directory_is_never_made_again_on_another(
    tmp_path: Path, until: Any
) -> None:
    """Even if it was not led when its directory failed: an empty log would give wrong answers."""
    dirs = [tmp_path / "one", tmp_path / "two"]
    log_dirs = ",".join(map(str, dirs))
    async with Broker(config(tmp_path, **{"log.dirs": log_dirs})) as broker:
        (listener,) = broker.opened.listeners.all
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=4, replication_factor=1)
        await ask(listener.port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        await broker.rooms.hosting.local.until_applied(broker.image.revision)
        failing = broker.rooms.disks.log_dirs.dir_of(TopicPartition("t", 0))
        assert failing is not None
        lost = {name.partition for name in failing.logs}
        assert len(lost) == 2, "logs are spread over both directories"

        broker.rooms.hosting.local.lost_registration()
        broker.rooms.disks.failed(TopicPartition("t", 0), OSError("broken"))
        registered_again(broker)
        await until(lambda: len(broker.rooms.partitions) == 4 - len(lost))
        await broker.rooms.hosting.local.until_applied(broker.image.revision)
        for index in range(4):
            found = broker.rooms.partitions.find("t", index)
            assert (found is ErrorCode.KAFKA_STORAGE_ERROR) == (index in lost)
        (other,) = (path for path in dirs if str(path) != failing.path)
        assert {path.name for path in other.glob("t-*")} == {f"t-{i}" for i in {*range(4)} - lost}


async def test_a_log_without_a_topic_id_of_its_own_fails_with_its_directory(tmp_path: Path) -> None:
    """Logs from before Kafka 2.8 have no partition.metadata: they go to the topic of that name."""
    async with Broker(config(tmp_path)) as broker:
        (listener,) = broker.opened.listeners.all
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await ask(listener.port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        await broker.rooms.hosting.local.until_applied(broker.image.revision)
    (tmp_path / "data" / "t-0" / "partition.metadata").unlink()
    async with Broker(config(tmp_path)) as broker:
        assert broker.rooms.partitions.get("t", 0) is not None
        broker.rooms.disks.failed(TopicPartition("t", 0), OSError("broken"))
        assert broker.rooms.partitions.find("t", 0) is ErrorCode.KAFKA_STORAGE_ERROR


class FailingFiles(PosixFiles):
    """Fails to make directories, or leader epoch files, of topic t as often as configured."""

    def __init__(self, error: int, times: int, *, at_flush: bool = False) -> None:
        self.error, self.times, self.at_flush = error, times, at_flush
        self.asked = 0

    def _may_fail(self, path: str) -> None:
        self.asked += 1
        if self.asked <= self.times:
            raise OSError(self.error, "it has to fail", path)

    def make_directory(self, path: str) -> None:
        if not self.at_flush and "/t-" in path:
            self._may_fail(path)
        super().make_directory(path)

    def open(self, path: str, *, create: bool = False) -> File:
        if self.at_flush and "/t-" in path and path.endswith("/leader-epoch-checkpoint.tmp"):
            self._may_fail(path)
        return super().open(path, create=create)


async def create_topic(broker: Broker) -> None:
    (listener,) = broker.opened.listeners.all
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    answer = await ask(listener.port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert [row.error_code for row in answer.topics] == [0]


@pytest.mark.parametrize("at_flush", [False, True])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
async def test_a_log_that_found_no_room_is_tried_again_until_it_is_served(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch, *, error: int, at_flush: bool
) -> None:
    files = FailingFiles(error, 3, at_flush=at_flush)
    async with Broker(config(tmp_path), files) as broker:
        retries: list[Callable[[], None]] = []
        monkeypatch.setattr(broker.rooms.hosting.local, "_try_later", retries.append)
        with capture_logs() as logs:
            await create_topic(broker)
            for failed in range(1, 4):
                await until(lambda failed=failed: len(retries) == failed)
                assert broker.rooms.partitions.find("t", 0) is ErrorCode.KAFKA_STORAGE_ERROR
                retries[-1]()
            await until(lambda: broker.rooms.partitions.get("t", 0) is not None)
        logged = [entry for entry in logs if entry["event"] == "partition_not_started"]
        assert [(entry["partition"], entry["path"]) for entry in logged] == [
            ("t-0", str(tmp_path / "data"))
        ]
        assert "it has to fail" in logged[0]["error"]
        assert broker.failure is None
        assert broker.rooms.disks.log_dirs.failed == []
        assert len(retries) == 3


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
async def test_a_directory_in_which_no_log_can_be_made_has_failed(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """As in LogManager.createLogDirectory: the next directory takes the log."""
    monkeypatch.setattr(local_partitions, "TRY_AGAIN_S", 0)
    dirs = [str(tmp_path / "one"), str(tmp_path / "two")]
    async with Broker(
        config(tmp_path, **{"log.dirs": ",".join(dirs)}), FailingFiles(error, 1)
    ) as broker:
        with capture_logs() as logs:
            await create_topic(broker)
            await until(lambda: broker.rooms.partitions.get("t", 0) is not None)
        assert len(broker.rooms.disks.log_dirs.failed) == 1
        (logged,) = [entry for entry in logs if entry["event"] == "log_directory_failed"]
        assert (logged["path"], logged["partition"]) == (
            broker.rooms.disks.log_dirs.failed[0],
            "t-0",
        )
        assert broker.failure is None


async def test_without_a_directory_in_which_a_log_can_be_made_the_broker_ends(
    tmp_path: Path,
) -> None:
    async with Broker(config(tmp_path), FailingFiles(errno.EIO, 1)) as broker:
        await create_topic(broker)
        await broker.until_ended()
        assert broker.failure is not None
        assert "no log directory is left" in broker.failure


async def test_a_disk_that_does_not_even_take_its_lock_back_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with Broker(config(tmp_path), FailingFiles(errno.EIO, 1)) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", fail)
            await create_topic(broker)
            async with asyncio.timeout(10):
                await broker.until_ended()
        assert broker.failure is not None
        assert "no log directory is left" in broker.failure


async def test_a_topic_that_is_deleted_before_its_log_was_made_is_not_tried_again(
    tmp_path: Path, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(config(tmp_path), FailingFiles(errno.ENOSPC, 1)) as broker:
        retries: list[Callable[[], None]] = []
        monkeypatch.setattr(broker.rooms.hosting.local, "_try_later", retries.append)
        await create_topic(broker)
        await until(lambda: retries)
        (listener,) = broker.opened.listeners.all
        await ask(listener.port, DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        await until(lambda: broker.image.topic("t") is None)
        await broker.rooms.hosting.local.until_applied(broker.image.revision)
        assert not broker.rooms.partitions.unstarted
        retries[0]()
        await broker.rooms.hosting.local.until_applied(broker.image.revision)
        assert not (tmp_path / "data" / "t-0").exists()


async def closed(port: int) -> None:
    """Return when a new connection is closed at once."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            at_end = not await asyncio.wait_for(reader.read(1), 0.1)
        except TimeoutError:
            at_end = False
        except ConnectionError:
            at_end = True
        writer.close()
        if at_end:
            return


async def test_a_changed_limit_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    overrides = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "localhost:2"}
    async with Broker(config(tmp_path)) as broker:
        (listener,) = broker.opened.listeners.all
        change = IncrementalAlterConfigsRequest.AlterableConfig
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=4,
            resource_name="1",
            configs=[change(name=key, value=value) for key, value in overrides.items()],
        )
        answer = await ask(listener.port, IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer
        held = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
        await closed(listener.port)
        for _, writer in held:
            writer.close()
    async with Broker(config(tmp_path)) as broker:
        (listener,) = broker.opened.listeners.all
        held = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(2)]
        await closed(listener.port)
        for _, writer in held:
            writer.close()

import errno
import resource
import socket
from pathlib import Path

import pytest
from logfleet.config.broker import broker_config
from logfleet.io.files import PosixFiles, Space
from logfleet.metadata.kinds.brokers import Endpoint
from logfleet.node.broker import Broker
from logfleet.node.tools import directory_check, doctor
from logfleet.node.tools.doctor import ProbeAnswer
from logfleet.node.tools.finding import Finding, Level, worst
from logfleet.node.tools.loopback_ports import LoopbackPorts
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
GIB = 1 << 30


def config_of(tmp_path, **more):
    given = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    return broker_config({**given, **{key.replace("_", "."): value for key, value in more.items()}})


async def found(config) -> list[Finding]:
    return [finding async for finding in doctor.examine(config, PosixFiles())]


def failed(findings) -> list[str]:
    return [each.message for each in findings if each.level is Level.FAILED]


async def test_a_machine_that_is_fit_fails_nothing_and_is_left_as_it_was(tmp_path):
    findings = await found(config_of(tmp_path))
    assert failed(findings) == []
    assert list(tmp_path.iterdir()) == []
    checks = {each.check for each in findings}
    assert checks >= {"disk", "clock", "port", "metadata", "advertised address", "file descriptors"}


async def test_a_running_broker_is_known_again_and_a_stranger_is_not(tmp_path):
    ports = LoopbackPorts()
    port = ports.reserve()
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    config = config_of(tmp_path, listeners=listeners)
    async with Broker(config):
        findings = await found(config)
        assert failed(findings) == []
        told = {each.message for each in findings}
        assert f"this broker answers at 127.0.0.1:{port}" in told
        assert any("is broker 1 of cluster" in message for message in told)
        other = tmp_path / "other"
        async with Broker(config_of(other)):
            port_taken, address = failed(await found(config_of(other, listeners=listeners)))
            assert "stop it, or change listeners" in port_taken
            assert "set advertised.listeners" in address
            (problem,) = failed(await found(config_of(other, advertised_listeners=listeners)))
            assert "set advertised.listeners to this broker's own address" in problem
    assert failed(await found(config)) == []
    ports.release()


def one_of_a_fleet(broker: FakeBroker, node_id: int) -> None:
    """Let it answer as brokers 1 and 2: each has the whole image but only its own configuration."""
    rows = [DescribeClusterResponse.DescribeClusterBroker(broker_id=each) for each in (1, 2)]

    def configs(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        (resource,) = request.resources
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        if resource.resource_name != str(node_id):
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Unexpected id"
        return DescribeConfigsResponse(results=[result])

    broker.answers |= {
        DescribeClusterRequest: lambda _: DescribeClusterResponse(cluster_id="c", brokers=rows),
        DescribeConfigsRequest: configs,
    }


@pytest.mark.parametrize("node_id, level", [(1, Level.FAILED), (2, Level.OK)])
async def test_the_address_of_another_broker_of_the_cluster_is_not_this_ones(node_id, level):
    async with FakeBroker().running() as broker:
        one_of_a_fleet(broker, node_id)
        listener = Endpoint("PLAINTEXT", "127.0.0.1", broker.port)
        address = await doctor.check_address(listener, 2, "c", is_running=True)
        assert address.level is level
        assert (await doctor.check_port(listener, 2, "c")).level is level
    if level is Level.FAILED:
        assert "answers another broker, of cluster c: set advertised.listeners" in address.message


async def test_a_port_that_another_program_has_is_named(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        async def nobody(*_args: object) -> ProbeAnswer:
            raise TimeoutError

        monkeypatch.setattr(doctor, "probe", nobody)
        finding = await doctor.check_port(Endpoint("PLAINTEXT", "127.0.0.1", port), 1, None)
    assert finding.level is Level.FAILED
    assert "end what does, or change listeners" in finding.message


async def test_directories_of_others_are_distinguished(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for path, node, cluster in ((one, 7, "a"), (two, 1, "b")):
        path.mkdir()
        (path / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id={cluster}\n")
    problems = failed(await found(config_of(tmp_path, log_dirs=f"{one},{two}")))
    for why in ("set node.id=7", "several clusters", "is not there: what Apache Kafka wrote"):
        assert any(why in problem for problem in problems), (why, problems)
    (one / "meta.properties").write_text("who knows")
    problems = failed(await found(config_of(tmp_path, log_dirs=str(one))))
    assert any("cannot be used" in problem for problem in problems)


async def test_data_without_an_identity_fails(tmp_path):
    (tmp_path / "d" / "t-0").mkdir(parents=True)
    problems = failed(await found(config_of(tmp_path, log_dirs=f"{tmp_path}/d")))
    assert any("holds 1 partition (t-0) but no meta.properties" in each for each in problems)


async def test_a_directory_that_is_listed_twice_fails(tmp_path):
    problems = failed(await found(config_of(tmp_path, log_dirs=f"{tmp_path}/d,{tmp_path}/d/")))
    assert any("are one directory" in each for each in problems)


async def test_two_directories_of_one_identity_fail(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(
            "node.id=1\ncluster.id=c\ndirectory.id=d\n"
        )
    problems = failed(await found(config_of(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b")))
    assert any("have the same directory.id=d" in each for each in problems)
    problems = failed(await found(config_of(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/a/")))
    assert not any("have the same directory.id" in each for each in problems)


async def test_a_checkpoint_from_the_future_reports_that_the_clock_went_back(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    checkpoint = path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n0\n")
    assert failed(await found(config_of(tmp_path))) == []
    PosixFiles().set_modified(str(checkpoint), 4_000_000_000_000)
    (problem,) = failed(await found(config_of(tmp_path)))
    assert "set the clock" in problem


async def test_a_host_without_address_is_named(tmp_path):
    listener = "PLAINTEXT://no-such-host.invalid:9092"
    (problem,) = failed(await found(config_of(tmp_path, advertised_listeners=listener)))
    assert problem.startswith("no-such-host.invalid has no address")


async def test_keys_that_do_nothing_are_reported(tmp_path):
    config = config_of(tmp_path, log_retnetion_ms="1", num_io_threads="9")
    messages = [each.message for each in doctor.judge_keys(config)]
    assert messages[0].startswith("no broker knows log.retnetion.ms")
    assert any("without effect" in message for message in messages) == bool(config.without_effect)


@pytest.mark.parametrize(
    "total, usable, level",
    [
        (1000 * GIB, 500 * GIB, Level.OK),
        (1000 * GIB, 190 * GIB, Level.WARNING),
        (1000 * GIB, 40 * GIB, Level.FAILED),
        (1 * GIB, 16 << 20, Level.FAILED),
    ],
)
async def test_a_disk_is_judged_by_what_is_free(total, usable, level):
    assert directory_check.judge_space("/d", Space(total, usable), 16 << 20).level is level


@pytest.mark.parametrize(
    "finding, level",
    [
        (directory_check.judge_fsync("/d", 3.0), Level.OK),
        (directory_check.judge_fsync("/d", 900.0), Level.WARNING),
        (doctor.judge_descriptors(1024), Level.WARNING),
        (doctor.judge_descriptors(4096), Level.OK),
        (doctor.judge_descriptors(resource.RLIM_INFINITY), Level.OK),
        (doctor.judge_clock(1.0, 0.0), Level.FAILED),
        (doctor.judge_clock(1.8e9, 0.0), Level.OK),
        (doctor.judge_clock(1.8e9, -3.0), Level.WARNING),
        (doctor.judge_store("etcd", None, "c"), Level.FAILED),
        (doctor.judge_store("etcd", "d", "c"), Level.FAILED),
        (doctor.judge_store("etcd", "c", "c"), Level.OK),
        (doctor.judge_store("etcd", None, None), Level.OK),
        (doctor.judge_answer("h:1", ProbeAnswer("c", is_expected=False), 1, "c"), Level.FAILED),
        (doctor.judge_answer("h:1", ProbeAnswer("d", is_expected=True), 1, "c"), Level.FAILED),
        (doctor.judge_answer("h:1", ProbeAnswer("c", is_expected=True), 1, "c"), Level.OK),
    ],
)
async def test_what_was_measured_is_judged(finding, level):
    assert finding.level is level
    assert finding.level is Level.OK or ":" in finding.message, "it says what to do"


async def test_the_worst_finding_counts():
    def of(*levels: Level) -> list[Finding]:
        return [Finding("x", level, "") for level in levels]

    assert worst([]) is Level.OK
    assert worst(of(Level.OK, Level.WARNING, Level.OK)) is Level.WARNING
    assert worst(of(Level.FAILED, Level.WARNING)) is Level.FAILED


@pytest.mark.parametrize("name", ["closed", "closed/data"])
async def test_a_directory_that_may_not_be_entered_is_named(tmp_path, monkeypatch, name):
    """Permissions do not bind the root user: the file system's refusal is played."""
    closed, log_dir = tmp_path / "closed", tmp_path / name
    closed.mkdir()
    exists = Path.exists

    def refuse(path: Path) -> bool:
        if closed in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", refuse)
    findings = await found(config_of(tmp_path, log_dirs=str(log_dir)))
    problems = [each for each in findings if each.level is Level.FAILED]
    assert [each.check for each in problems] == ["log directory", "metadata"]
    for each in problems:
        assert str(log_dir) in each.message
        assert "Permission denied" in each.message
        assert "the user that runs the broker" in each.message


async def test_a_default_admin_port_that_is_taken_keeps_no_broker_from_starting():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = Endpoint("HTTP", "127.0.0.1", taken.getsockname()[1], "HTTP")
        levels = [
            doctor.check_admin_port(listener, is_running=False, is_default=is_default).level
            for is_default in (True, False)
        ]
    assert levels == [Level.OK, Level.FAILED]


async def test_an_admin_port_that_another_program_has_is_named_and_a_brokers_own_is_not(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"logfleet.admin.listener": address}
        (problem,) = failed(await found(config_of(tmp_path, **given)))
        assert problem.startswith(f"logfleet.admin.listener cannot listen on {address}")
        assert "end what does, or change logfleet.admin.listener" in problem
    ports = LoopbackPorts()
    config = config_of(tmp_path, **{"logfleet.admin.listener": f"127.0.0.1:{ports.reserve()}"})
    assert failed(await found(config)) == []
    async with Broker(config):
        assert failed(await found(config)) == []
    ports.release()

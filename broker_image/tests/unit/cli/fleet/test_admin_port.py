"""Real brokers, asked at their real admin ports."""

import json
from pathlib import Path

import click
import pytest
from logfleet.cli.fleet.admin_port import Answers, ask_all, ask_any
from logfleet.client.cluster import Client
from logfleet.config.broker import with_admin_port
from logfleet.node.broker import Broker
from logfleet.node.tools.loopback_ports import LoopbackPorts

from broker_image.tests.unit.node.broker_rig import config

pytestmark = pytest.mark.asyncio


def reports(broker: Broker, admin_port: int) -> None:
    """From now on the broker names this admin port to clients."""
    object.__setattr__(broker.rooms, "config", with_admin_port(broker.config, admin_port))


async def asked(running: Broker, **parameters: list[str]) -> Answers:
    (listener,) = running.opened.listeners.all
    async with Client(f"127.0.0.1:{listener.port}") as client:
        everybody = await ask_all(client, "/events", parameters)
        anybody = await ask_any(client, "/events", parameters)
        assert (anybody.texts, anybody.failures) == (everybody.texts, everybody.failures)
        return everybody


@pytest.mark.parametrize("host", ["127.0.0.1", "", "0.0.0.0"])
async def test_a_broker_is_asked_where_it_says_that_its_admin_port_is(
    tmp_path: Path, host: str
) -> None:
    with LoopbackPorts() as ports:
        admin = f"{host}:{ports.reserve()}"
        async with Broker(config(tmp_path, **{"logfleet.admin.listener": admin})) as broker:
            answers = await asked(broker, kind=["registered", "fenced"], broker=["1"])
    (line,) = answers.texts[1].splitlines()
    assert json.loads(line)["kind"] == "registered"
    assert answers.failures == {}
    answers.report_failures()


async def test_a_broker_without_an_admin_port_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(config(tmp_path, **{"logfleet.admin.listener": ""})) as broker:
        answers = await asked(broker)
    assert answers.texts == {}
    with pytest.raises(click.ClickException, match="no broker could be asked"):
        answers.report_failures()
    assert capsys.readouterr().err == (
        "Error: broker 1: it has no admin port: start it with logfleet.admin.listener=host:port\n"
    )


async def test_any_free_port_is_told_by_the_configuration(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, **{"logfleet.admin.listener": "127.0.0.1:0"})) as broker:
        answers = await asked(broker, kind=["registered"], broker=["1"])
    assert (set(answers.texts), answers.failures) == ({1}, {})


async def test_an_admin_port_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with LoopbackPorts() as ports:
        closed = ports.reserve()
        async with Broker(config(tmp_path)) as broker:
            reports(broker, closed)
            answers = await asked(broker)
    reason = answers.failures[1]
    assert reason.startswith(f"http://127.0.0.1:{closed}/events cannot be asked: ")
    assert reason.endswith("run the command there, or set logfleet.admin.listener")


async def test_another_broker_at_that_address_is_not_believed(tmp_path: Path) -> None:
    async with Broker(config(tmp_path / "a")) as here, Broker(config(tmp_path / "b")) as there:
        assert here.config.logfleet_admin_listener is not None
        reports(there, here.config.logfleet_admin_listener.port)
        answers = await asked(there)
    assert answers.texts == {}
    assert (
        "/events another broker answers; that is a port of the broker's own machine"
        in (answers.failures[1])
    )


async def test_a_wrong_question_is_told_with_the_brokers_words(tmp_path: Path) -> None:
    with LoopbackPorts() as ports:
        admin = f"127.0.0.1:{ports.reserve()}"
        async with Broker(config(tmp_path, **{"logfleet.admin.listener": admin})) as broker:
            with pytest.raises(click.ClickException, match="Expected `int`"):
                await asked(broker, since=["x"])


async def test_a_broker_that_refuses_is_named(tmp_path: Path) -> None:
    with LoopbackPorts() as ports:
        admin = f"127.0.0.1:{ports.reserve()}"
        async with Broker(config(tmp_path, **{"logfleet.admin.listener": admin})) as broker:
            (listener,) = broker.opened.listeners.all
            async with Client(f"127.0.0.1:{listener.port}") as client:
                answers = await ask_all(client, "/nothing", {})
    assert answers == Answers({}, {1: f"http://{admin}/nothing answers 404: 404: Not Found"}, {})

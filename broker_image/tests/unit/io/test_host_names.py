"""Host names, with name servers that respond when the test lets them."""

import asyncio
import errno
import socket
import threading
from concurrent.futures import Future

import pytest
import pytest_asyncio
from logfleet.io import host_names
from logfleet.io.host_names import HostNames

pytestmark = pytest.mark.asyncio
NO_SUCH_HOST = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NO_ANSWER = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


class NameServers:
    """Every question waits for its answer: addresses, or what is raised."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._answers: list[Future[list[str]]] = []
        self._changed = threading.Condition()

    def __call__(self, host: str) -> list[str]:
        answer: Future[list[str]] = Future()
        with self._changed:
            self.asked.append(host)
            self._answers.append(answer)
            self._changed.notify_all()
        return answer.result(30)

    async def answer(self, number: int, *addresses: str, error: Exception | None = None) -> None:
        """Answer the question of that number, once it has been asked."""
        answer = await self.asked_for(number)
        if error is None:
            answer.set_result(list(addresses))
        else:
            answer.set_exception(error)

    async def asked_for(self, number: int) -> Future[list[str]]:
        """The question of that number, once it has been asked."""
        return await asyncio.to_thread(self._question, number)

    def _question(self, number: int) -> Future[list[str]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._answers) > number, 30)
            return self._answers[number]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> NameServers:
    """Nobody loses patience, however slow the machine is."""
    monkeypatch.setattr(host_names, "PATIENCE_S", 30.0)
    monkeypatch.setattr(host_names, "SECOND_LOOKUP_S", 30.0)
    return NameServers()


@pytest_asyncio.fixture
async def names(servers: NameServers) -> HostNames:
    """Which know where `peer` is."""
    names = HostNames(servers)
    found, _ = await asyncio.gather(names.addresses("peer"), servers.answer(0, "10.0.0.1", "fd::1"))
    assert found == ["10.0.0.1", "fd::1"]
    return names


async def test_an_address_is_its_own(servers: NameServers) -> None:
    names = HostNames(servers)
    assert await names.addresses("10.0.0.1") == ["10.0.0.1"]
    assert await names.addresses("fd::1") == ["fd::1"]
    assert servers.asked == []


async def test_each_connection_looks_up_again_as_pods_get_other_addresses(names, servers) -> None:
    found, _ = await asyncio.gather(names.addresses("peer"), servers.answer(1, "10.0.0.2"))
    assert found == ["10.0.0.2"]


async def test_without_an_answer_a_host_is_where_it_was(names, servers, monkeypatch) -> None:
    monkeypatch.setattr(host_names, "PATIENCE_S", 0.01)
    assert await names.addresses("peer") == ["10.0.0.1", "fd::1"]
    assert await names.addresses("peer") == ["10.0.0.1", "fd::1"]
    await servers.asked_for(1)
    assert servers.asked == ["peer"] * 2, "one lookup runs, nobody begins another"
    monkeypatch.setattr(host_names, "PATIENCE_S", 30.0)
    found, _ = await asyncio.gather(names.addresses("peer"), servers.answer(1, "10.0.0.2"))
    assert found == ["10.0.0.2"], "what it finds late counts"


async def test_a_caller_that_wants_a_current_address_waits_for_it(names, servers, monkeypatch):
    monkeypatch.setattr(host_names, "PATIENCE_S", 0.01)
    current = names.addresses("peer", only_current=True)
    found, _ = await asyncio.gather(current, servers.answer(1, "10.0.0.2"))
    assert found == ["10.0.0.2"]
    with pytest.raises(socket.gaierror, match="Temporary failure"):
        await asyncio.gather(
            names.addresses("peer", only_current=True), servers.answer(2, error=NO_ANSWER)
        )


async def test_a_question_that_is_lost_is_asked_again(names, servers, monkeypatch) -> None:
    monkeypatch.setattr(host_names, "SECOND_LOOKUP_S", 0.01)
    found, *_ = await asyncio.gather(
        names.addresses("other"),
        servers.answer(2, "10.0.0.7"),  # 1 gets no answer
        names.addresses("other"),
    )
    assert found == ["10.0.0.7"]


async def test_the_last_failed_lookup_gives_the_reason(servers, monkeypatch) -> None:
    monkeypatch.setattr(host_names, "SECOND_LOOKUP_S", 0.01)
    asking = asyncio.ensure_future(HostNames(servers).addresses("peer"))
    await servers.asked_for(host_names.LOOKUPS_MAX - 1)
    for number in range(host_names.LOOKUPS_MAX):
        assert not asking.done()
        await servers.answer(number, error=NO_ANSWER)
    with pytest.raises(socket.gaierror, match="Temporary failure"):
        await asking
    assert len(servers.asked) == host_names.LOOKUPS_MAX


async def test_without_a_thread_the_next_one_may_ask(names, servers, monkeypatch) -> None:
    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            await names.addresses("other")
        assert await names.addresses("peer") == ["10.0.0.1", "fd::1"]
    found, _ = await asyncio.gather(names.addresses("other"), servers.answer(1, "10.0.0.7"))
    assert found == ["10.0.0.7"]


async def test_a_name_server_in_trouble_is_no_reason_to_forget_a_host(names, servers) -> None:
    found, _ = await asyncio.gather(names.addresses("peer"), servers.answer(1, error=NO_ANSWER))
    assert found == ["10.0.0.1", "fd::1"]


async def test_a_host_that_is_gone_is_forgotten(names, servers) -> None:
    with pytest.raises(socket.gaierror, match="Name or service not known"):
        await asyncio.gather(names.addresses("peer"), servers.answer(1, error=NO_SUCH_HOST))
    with pytest.raises(socket.gaierror, match="Temporary failure"):
        await asyncio.gather(names.addresses("peer"), servers.answer(2, error=NO_ANSWER))


async def test_a_cancelled_caller_does_not_stop_the_others(servers) -> None:
    names = HostNames(servers)
    patient = asyncio.ensure_future(names.addresses("peer"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await names.addresses("peer")
    await servers.answer(0, "10.0.0.1")
    assert await patient == ["10.0.0.1"]
    assert servers.asked == ["peer"]


async def test_the_first_address_that_can_be_connected_to_counts(names, servers) -> None:
    tried: list[str] = []

    async def connect(address: str) -> str:
        tried.append(address)
        if address != "10.0.0.3":
            raise ConnectionRefusedError(address)
        return f"to {address}"

    addresses = ("10.0.0.1", "10.0.0.3", "10.0.0.4")
    made, _ = await asyncio.gather(names.first("peer", connect), servers.answer(1, *addresses))
    assert (made, tried) == ("to 10.0.0.3", ["10.0.0.1", "10.0.0.3"])


async def test_a_refused_connection_is_raised_before_other_errors(names, servers) -> None:
    async def connect(address: str) -> None:
        raise {"::1": OSError(errno.ENETUNREACH, "no IPv6"), "10.0.0.1": ConnectionRefusedError()}[
            address
        ]

    with pytest.raises(ConnectionRefusedError):
        await asyncio.gather(names.first("peer", connect), servers.answer(1, "::1", "10.0.0.1"))
    with pytest.raises(OSError, match="no IPv6"):
        await asyncio.gather(names.first("peer", connect), servers.answer(2, "::1"))


async def test_an_invalid_name_is_an_error_of_its_own() -> None:
    with pytest.raises(UnicodeError):
        await HostNames().addresses("a" * 64 + ".example")


async def test_a_link_local_address_keeps_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 0, 0, 2))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert host_names.look_up("peer") == ["fe80::1%2"]


async def test_the_system_is_asked() -> None:
    assert {"127.0.0.1", "::1"} & set(await HostNames().addresses("localhost"))

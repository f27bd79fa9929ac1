"""Requests to a broker over HTTP, at its port for metrics and health.

Its configuration names it, as `logfleet.admin.listener`.
"""

import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.client.metadata import Node, bracketed
from logfleet.config.broker import ADMIN_LISTENER
from logfleet.telemetry.identity import IDENTITY_HEADER, identity

ANSWER_S_MAX: Final = 10.0
BAD_REQUEST: Final = 400
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  compared with, not bound

Parameters = Mapping[str, Sequence[str]]
"""Values by name; a name may have several."""


class NoAnswer(Exception):
    """A broker's admin port is unknown or does not answer; the message says why."""


class MalformedQuestion(Exception):
    """The broker finds the request malformed, as every broker would; the message is its own."""


class Answer(NamedTuple):
    """A response. clock_ahead_s: of the broker's clock, give or take a second; None: no date."""

    text: str
    clock_ahead_s: float | None


async def admin_listener(node: Node) -> str:
    """The listener in the broker's own configuration. Raises NoAnswer if it has none."""
    async with Client(node.address, timeout_ms=0) as client:
        try:
            entries = await Admin(client).own_config(node.id)
        except ClientError as error:
            raise NoAnswer(f"its admin port is not known: {error}") from error
    listener = entries[ADMIN_LISTENER].value if ADMIN_LISTENER in entries else None
    if not listener:
        raise NoAnswer(f"it has no admin port: start it with {ADMIN_LISTENER}=host:port")
    return listener


async def ask(
    cluster_id: str,
    node: Node,
    listener: str,
    path: str,
    parameters: Parameters,
    *,
    timeout_s: float = ANSWER_S_MAX,
) -> Answer:
    """The broker's answer. listener: see `admin_listener`. Raises NoAnswer, MalformedQuestion."""
    import aiohttp  # takes 10 MiB

    address = _address(node, listener)
    url = f"http://{address}{path}"
    given = [(name, value) for name, values in parameters.items() for value in values]
    timeout = aiohttp.ClientTimeout(timeout_s)
    before_s = time.time()
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, params=given) as answer,
        ):
            wanted = identity(cluster_id, node.id)
            # a version that does not send its identity is trusted
            if answer.headers.get(IDENTITY_HEADER, wanted) != wanted:
                raise NoAnswer(f"at {url} another broker answers{_on_loopback(address)}")
            now_s = (before_s + time.time()) / 2
            text = await answer.text()
            if answer.status == BAD_REQUEST:
                raise MalformedQuestion(text)
            if answer.status != 200:
                raise NoAnswer(f"{url} answers {answer.status}: {text.strip()}")
            return Answer(text, _ahead_s(answer.headers.get("Date", ""), now_s))
    except TimeoutError:
        raise NoAnswer(f"{url} does not answer within {timeout_s:.0f} s") from None
    except aiohttp.ClientError as error:
        raise NoAnswer(f"{url} cannot be asked: {error}{_on_loopback(address)}") from error


def _ahead_s(date: str, now_s: float) -> float | None:
    """By how much a Date header, which has no fractions, is ahead of now."""
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - now_s
    except ValueError:
        return None


def _address(node: Node, listener: str) -> str:
    """Host and port; a broker that listens on all addresses is asked at its clients' one."""
    host, _, port = listener.rpartition(":")
    host = host.strip("[]")
    return f"{bracketed(node.host if host in ANY_ADDRESS else host)}:{port}"


def _on_loopback(address: str) -> str:
    if not address.startswith(("127.", "localhost:", "[::1]:")):
        return ""
    return (
        f"; that is a port of the broker's own machine: run the command there, or set "
        f"{ADMIN_LISTENER}"
    )

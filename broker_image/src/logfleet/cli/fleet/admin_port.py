"""Requests to brokers over HTTP, at the port for metrics and health (`logfleet.admin.listener`)."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

import click

from logfleet.cli.fleet.cluster import unregistered
from logfleet.client.admin import Admin, ClusterDescription
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


class Answer(NamedTuple):
    """A response. clock_ahead_s: of the broker's clock, give or take a second; None: no date."""

    text: str
    clock_ahead_s: float | None


class Answers(NamedTuple):
    """The responses by broker id, and for other brokers the reason why there is none.

    clocks_ahead_s: by how much each broker's clock is ahead of the one here.
    """

    texts: dict[int, str]
    failures: dict[int, str]
    clocks_ahead_s: dict[int, float]

    def report_failures(self) -> None:
        """Print each failure on stderr. Raises ClickException if nobody answered."""
        for broker, reason in self.failures.items():
            click.echo(f"Error: broker {broker}: {reason}", err=True)
        if not self.texts:
            raise click.ClickException("no broker could be asked")


async def ask_all(client: Client, path: str, parameters: Parameters) -> Answers:
    """Ask every registered broker, including fenced ones, all at the same time."""
    admin = Admin(client)
    cluster = await admin.describe_cluster(include_fenced=True)
    answers = await ask_registered(cluster, path, parameters)
    gone = unregistered(cluster, await admin.list_topics())
    answers.failures.update(dict.fromkeys(gone, "it does not run"))
    return answers


async def ask_registered(
    cluster: ClusterDescription, path: str, parameters: Parameters | None = None
) -> Answers:
    """Ask these brokers, all at the same time."""
    found = await asyncio.gather(
        *(_ask(cluster, node, path, parameters or {}) for node in cluster.brokers),
        return_exceptions=True,
    )
    answers = Answers({}, {}, {})
    for node, answer in zip(cluster.brokers, found, strict=True):
        if isinstance(answer, Answer):
            answers.texts[node.id] = answer.text
            if answer.clock_ahead_s is not None:
                answers.clocks_ahead_s[node.id] = answer.clock_ahead_s
        elif isinstance(answer, NoAnswer):
            answers.failures[node.id] = str(answer)
        else:
            raise answer
    return answers


async def ask_any(client: Client, path: str, parameters: Parameters) -> Answers:
    """Ask one broker after the other until one answers."""
    answers = Answers({}, {}, {})
    cluster = await Admin(client).describe_cluster()
    for node in cluster.brokers:
        try:
            answers.texts[node.id] = (await _ask(cluster, node, path, parameters)).text
            break
        except NoAnswer as error:
            answers.failures[node.id] = str(error)
    return answers


async def _ask(
    cluster: ClusterDescription, node: Node, path: str, parameters: Parameters
) -> Answer:
    """Ask one broker. Raises NoAnswer; ClickException if the broker finds the request malformed."""
    import aiohttp  # takes 10 MiB

    address = await _address(node)
    url = f"http://{address}{path}"
    given = [(name, value) for name, values in parameters.items() for value in values]
    timeout = aiohttp.ClientTimeout(ANSWER_S_MAX)
    before_s = time.time()
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, params=given) as answer,
        ):
            wanted = identity(cluster.cluster_id or "", node.id)
            # a version that does not send its identity is trusted
            if answer.headers.get(IDENTITY_HEADER, wanted) != wanted:
                raise NoAnswer(f"at {url} another broker answers{_on_loopback(address)}")
            now_s = (before_s + time.time()) / 2
            text = await answer.text()
            if answer.status == BAD_REQUEST:  # every broker would refuse the request
                raise click.ClickException(text)
            if answer.status != 200:
                raise NoAnswer(f"{url} answers {answer.status}: {text.strip()}")
            return Answer(text, _ahead_s(answer.headers.get("Date", ""), now_s))
    except TimeoutError:
        raise NoAnswer(f"{url} does not answer within {ANSWER_S_MAX:.0f} s") from None
    except aiohttp.ClientError as error:
        raise NoAnswer(f"{url} cannot be asked: {error}{_on_loopback(address)}") from error


def _ahead_s(date: str, now_s: float) -> float | None:
    """By how much a Date header, which has no fractions, is ahead of now."""
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - now_s
    except ValueError:
        return None


def _on_loopback(address: str) -> str:
    if not address.startswith(("127.", "localhost:", "[::1]:")):
        return ""
    return (
        f"; that is a port of the broker's own machine: run the command there, or set "
        f"{ADMIN_LISTENER}"
    )


async def _address(node: Node) -> str:
    """Host and port, from the broker's own configuration. Raises NoAnswer."""
    async with Client(node.address, timeout_ms=0) as client:
        try:
            entries = await Admin(client).own_config(node.id)
        except ClientError as error:
            raise NoAnswer(f"its admin port is not known: {error}") from error
    listener = entries[ADMIN_LISTENER].value if ADMIN_LISTENER in entries else None
    if not listener:
        raise NoAnswer(f"it has no admin port: start it with {ADMIN_LISTENER}=host:port")
    host, _, port = listener.rpartition(":")
    host = host.strip("[]")
    return f"{bracketed(node.host if host in ANY_ADDRESS else host)}:{port}"

"""Questions to all brokers, or to any one, at their admin ports."""

import asyncio
from typing import NamedTuple

import click

from logfleet.cli.fleet.cluster import unregistered
from logfleet.client.admin import Admin, ClusterDescription
from logfleet.client.brokers.admin_port import (
    Answer,
    MalformedQuestion,
    NoAnswer,
    Parameters,
    admin_listener,
    ask,
)
from logfleet.client.cluster import Client
from logfleet.client.metadata import Node


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
    listener = await admin_listener(node)
    try:
        return await ask(cluster.cluster_id or "", node, listener, path, parameters)
    except MalformedQuestion as error:
        raise click.ClickException(str(error)) from error

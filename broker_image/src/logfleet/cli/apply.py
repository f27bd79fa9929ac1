"""`logfleet apply`: make topics and dynamic settings match resource documents.

It takes the documents that `kubectl apply` takes on Kubernetes.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from logfleet.cli.documents import Document, DocumentError, read_documents
from logfleet.cli.output.formats import Output
from logfleet.cli.output.report import Report
from logfleet.cli.session import Server, changing_options, run
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError, KafkaError
from logfleet.client.reassignments import list_reassignments
from logfleet.client.reconcile import (
    cluster_as_shown,
    observe_brokers,
    observe_topic,
    perform_all,
    topic_as_shown,
)
from logfleet.resources import rebalance
from logfleet.resources.cluster import ClusterResource, parse_cluster
from logfleet.resources.document import GROUP, InvalidResourceError
from logfleet.resources.plan import TopicPlan, claimants, conflict, plan_cluster, plan_topic
from logfleet.resources.topic import TopicResource, parse_topic
from logfleet.wire.errors import ErrorCode

Resource = ClusterResource | TopicResource

PARSERS: Final[dict[str, Callable[[object], Resource]]] = {
    "Cluster": parse_cluster,
    "Topic": parse_topic,
}


@click.command()
@click.option(
    "-f",
    "--filename",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    help="A YAML or JSON file, a folder of them, or - for standard input; may be given again and "
    "again.",
)
@changing_options
def apply(paths: tuple[Path, ...], dry_run: bool, output: Output, server: Server) -> None:
    """Make topics and settings match resource documents.

    The documents are those that `kubectl apply` takes. A Topic is created, grown and configured
    until it is as written; a key that is set on the topic and not written is removed. A Cluster is
    compared with the running one: its dynamic configuration is changed, and a warning names what
    only a restart or more brokers would change. Applying the same again changes nothing. Partitions
    are never taken away, and nothing is deleted.

    One line per resource says created, configured or unchanged. If a document is wrong, none is
    applied; if a broker refuses one, the others are still applied. Kinds that are not for this
    command, as a Rebalance or a ConfigMap, are skipped with a warning.

    \b
    logfleet apply -f crds/examples/
    logfleet apply -f crds/examples/topic.yaml
    logfleet apply -f topics/ -f cluster.yaml --dry-run
    kubectl get topics -o yaml | logfleet apply -f - -b broker:9092

    Exit codes: 0 all is as written, 1 something is not (one line on stderr for each), 2 the command
    line is wrong.
    """
    try:
        documents, skipped = applicable_documents(read_documents(paths))
        for line in skipped:
            click.echo(f"Warning: {line}", err=True)
        resources = parse(documents)
    except DocumentError as error:
        raise click.ClickException(str(error)) from error
    except InvalidDocuments as invalid:
        for line in invalid.lines:
            click.echo(f"Error: {line}", err=True)
        sys.exit(1)
    report = Report(output, dry_run=dry_run)
    run(server, functools.partial(apply_all, resources, report, dry_run=dry_run))
    report.end()


class InvalidDocuments(ValueError):
    """lines: one for each wrong document, naming the fields."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


def applicable_documents(documents: Sequence[Document]) -> tuple[list[Document], list[str]]:
    """The documents to apply, and a line for each skipped one.

    A folder for kubectl may hold other kinds, and a Rebalance.
    """
    taken, skipped = [], []
    for document in documents:
        reason = _why_skipped(document.content)
        if reason is None:
            taken.append(document)
        else:
            skipped.append(f"{document.where}{_title(document.content)}: skipped, {reason}")
    return taken, skipped


def _why_skipped(content: object) -> str | None:
    version, kind = (
        (content.get("apiVersion"), content.get("kind"))
        if isinstance(content, dict)
        else (None, None)
    )
    if not isinstance(version, str):
        return None
    group, slash, _ = version.partition("/")
    if not slash or group != GROUP:
        return f"{version} is not of {GROUP}"
    if kind == rebalance.KIND:
        return (
            "the operator carries it out: use `logfleet rebalance plan` and `logfleet rebalance "
            "run`"
        )
    return None


def parse(documents: Sequence[Document]) -> list[Resource]:
    """The resources in their order.

    Raises InvalidDocuments if any is wrong, or two of them contradict each other.
    """
    if not documents:
        raise InvalidDocuments(["there is no document to apply"])
    lines: list[str] = []
    resources: list[Resource] = []
    places: dict[tuple[str, str], str] = {}
    for where, content in documents:
        try:
            resource = _parse_one(content)
        except InvalidResourceError as error:
            lines.append(f"{where}{_title(content)}: {error}")
            continue
        identity = (resource.kind, resource.metadata.name)
        if identity in places:
            title = "/".join(identity)
            lines.append(f"{where}: {title} stands in {places[identity]} already, leave one out")
        places.setdefault(identity, where)
        resources.append(resource)
    if not lines:
        lines = _contradictions(resources)
    if lines:
        raise InvalidDocuments([" ".join(line.split()) for line in lines])
    return resources


def _parse_one(content: object) -> Resource:
    kind = content.get("kind") if isinstance(content, dict) else None
    parser = PARSERS.get(kind if isinstance(kind, str) else "", parse_topic)
    try:
        return parser(content)
    except InvalidResourceError as error:
        if parser is parse_topic and error.problems[0].path == "kind":
            raise InvalidResourceError(
                [msgspec.structs.replace(error.problems[0], message=_unknown_kind(kind))]
            ) from None
        raise


def _unknown_kind(kind: object) -> str:
    return f"is {kind!r}, write one of {', '.join(PARSERS)}"


def _title(content: object) -> str:
    """Kind and name for a message, as far as they are readable."""
    if not isinstance(content, dict):
        return ""
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    parts = [word for word in (content.get("kind"), name) if isinstance(word, str)]
    return f" ({'/'.join(parts)})" if parts else ""


def _contradictions(resources: Sequence[Resource]) -> list[str]:
    topics = [resource for resource in resources if isinstance(resource, TopicResource)]
    holders = claimants(topics)
    lines = [
        f"Topic/{topic.metadata.name}: {conflict(topic, holders[topic.name].metadata.name).message}"
        for topic in topics
        if holders[topic.name] is not topic
    ]
    clusters = {
        resource.metadata.name
        if isinstance(resource, ClusterResource)
        else resource.spec.cluster_ref.name
        for resource in resources
    }
    if len(clusters) > 1:
        lines.append(
            f"the documents are for the Clusters {', '.join(sorted(clusters))}, and one is behind "
            f"a bootstrap address: "
            "apply those of each Cluster by themselves"
        )
    return lines


async def apply_all(
    resources: Sequence[Resource], report: Report, client: Client, *, dry_run: bool
) -> None:
    """Apply one after the other; the report gets the result of each."""
    admin = Admin(client)
    for resource in resources:
        try:
            if isinstance(resource, ClusterResource):
                await _apply_cluster(admin, resource, report, dry_run=dry_run)
            else:
                await _apply_topic(admin, resource, report, dry_run=dry_run)
        except ClientError as error:
            report.refuse(resource.kind.lower(), resource.metadata.name, error)


async def _apply_topic(
    admin: Admin, desired: TopicResource, report: Report, *, dry_run: bool
) -> None:
    plans: list[TopicPlan] = []

    async def call() -> None:
        found = await admin.find_topic(desired.name)
        observed = (
            None
            if found is None
            else await observe_topic(admin, found, await list_reassignments(admin.client))
        )
        plan = plan_topic(topic_as_shown(desired), observed)
        plans.append(plan)
        await perform_all(admin, plan.actions, validate_only=dry_run)

    async def call_again_if_created_meanwhile() -> None:
        try:
            await call()
        except KafkaError as error:
            # created meanwhile, perhaps by our own request whose response was lost: compare with
            # what exists
            error.retriable = error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            raise

    await admin.client.retrying(call_again_if_created_meanwhile)
    first, last = plans[0], plans[-1]
    kind, name = desired.kind.lower(), desired.metadata.name
    if last.refusal is not None:
        report.fail(kind, name, last.refusal.message)
        return
    result = "unchanged"
    if first.actions:
        result = "created" if first.creates else "configured"
    report.done(kind, name, result, topic=desired.name, why=first.why)


async def _apply_cluster(
    admin: Admin, desired: ClusterResource, report: Report, *, dry_run: bool
) -> None:
    plan = plan_cluster(cluster_as_shown(desired), await observe_brokers(admin))
    await perform_all(admin, plan.actions, validate_only=dry_run)
    kind, name = desired.kind.lower(), desired.metadata.name
    result = "configured" if plan.actions else "unchanged"
    report.done(
        kind,
        name,
        result,
        why=plan.why,
        differences=plan.differences,
    )
    for difference in plan.differences:
        click.echo(f"Warning: {kind}/{name}: {difference}", err=True)

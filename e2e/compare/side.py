"""One of the two brokers as a case sees it: connections to ask over, topics of its own, and what was answered.

A case runs on both sides alike and knows of neither. What it asks with `ask`, `send` and `answer` is compared; what it needs
beforehand (`topic`, `get`) is not.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from logfleet.wire import messages as m
from logfleet.wire.apis import api_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.uuids import to_text

from e2e.compare.answers import CLOSED, NO_ANSWER, OTHER_CASES, Names, plain
from e2e.harness.wire_connection import TRY_AGAIN, Disconnected, WireConnection, error_codes, fit

CONFIG_TOPIC, SET = 2, 0
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
OWN_KEYS: Final = "logfleet."
ANSWER_WITHIN_S: Final = 20.0
"""Longer than every timer that a case sets."""
SHOWN_WITHIN_S: Final = 60.0
POLL_S: Final = 0.005
QUOTAS: Final = "AlterClientQuotas"
BARRIER: Final = "oracle-barrier"
CHANGES: Final = {
    m.CreateTopicsRequest,
    m.DeleteTopicsRequest,
    m.CreatePartitionsRequest,
    m.AlterConfigsRequest,
    m.IncrementalAlterConfigsRequest,
    m.AlterClientQuotasRequest,
    m.ElectLeadersRequest,
    m.AlterPartitionReassignmentsRequest,
}
"""Requests whose effect the brokers of Kafka learn from their controller, after the answer."""


class Seen(msgspec.Struct, frozen=True):
    """One answer. outcome: as `answers.plain` gives it, CLOSED or NO_ANSWER; asked: the request, for people."""

    api: str
    version: int
    asked: str
    outcome: Any


@dataclass(frozen=True)
class MadeTopic:
    name: str
    id: bytes


class CaseBroken(AssertionError):
    """What a case does before it asks went wrong; the text says what."""


class Side:
    """A broker that listens on `port`; product: "kafka" or "ours"."""

    def __init__(self, product: str, port: int, log_dir: str) -> None:
        self.product = product
        self.port = port
        self.log_dir = log_dir
        self.seen: list[Seen] = []
        self.prefix = ""
        self._names = Names()
        self._connections: dict[str, WireConnection] = {}
        self._topics: dict[str, None] = {}
        self._barriers = 0
        self.connection = WireConnection(port)
        barrier = m.CreateTopicsRequest.CreatableTopic(
            name=BARRIER, num_partitions=1, replication_factor=1
        )
        # a broker that was restarted has it
        self.get(m.CreateTopicsRequest(topics=[barrier], timeout_ms=30_000))
        self._warm_up()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    # --- a case's life

    def begin(self, name: str, now_from_ms: int, *, exact_texts: bool = False) -> None:
        """A new case of that name."""
        self.prefix = f"{OTHER_CASES}{name}-"
        self._names = Names(self.prefix, now_from_ms, exact_texts)
        self.seen = []

    def end(self) -> None:
        """Close the case's connections and have its topics deleted."""
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        if self._topics:
            states = [m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in self._topics]
            self.get(m.DeleteTopicsRequest(topics=states, timeout_ms=30_000))
            self._topics.clear()
        if any(each.api == QUOTAS for each in self.seen):
            self._forget_quotas()

    def _forget_quotas(self) -> None:
        """Take away every quota that there is: it would slow down all that comes."""
        kind = m.AlterClientQuotasRequest
        entries = []
        for found in self.get(m.DescribeClientQuotasRequest()).entries or []:
            entity = [
                kind.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                for each in found.entity
            ]
            ops = [kind.OpData(key=each.key, remove=True) for each in found.values]
            entries.append(kind.EntryData(entity=entity, ops=ops))
        self.get(kind(entries=entries))
        self.await_changes()

    def close(self) -> None:
        self.connection.socket.close()

    def reconnect(self) -> None:
        """Connect again after the broker has closed the connection that nothing is compared of."""
        self.close()
        self.connection = WireConnection(self.port)

    # --- what is compared

    def ask(self, request: msgspec.Struct, version: int | None = None, *, on: str = "main") -> Any:
        """Send and `answer`. version: the newest if None; fields that it lacks are left out."""
        self.send(request, version, on=on)
        return self.answer(request, version, on=on)

    def send(
        self,
        request: msgspec.Struct,
        version: int | None = None,
        *,
        on: str = "main",
        rewritten: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """Send only, over the connection of that name; the client id is the part of the name before a `#`.

        rewritten: bytes of the same size to send instead of the encoded request.
        """
        version = _version(request, version)
        with contextlib.suppress(ConnectionError):
            self._connection(on).send(fit(request, version), version, rewritten)

    def answer(
        self, request: msgspec.Struct, version: int | None = None, *, on: str = "main"
    ) -> Any:
        """The answer to the oldest request that was sent over that connection; None if there is none."""
        version = _version(request, version)
        try:
            answer = self._connection(on).receive(type(request), version)
        except Disconnected:
            return self._ended(request, version, on, CLOSED)
        except TimeoutError:
            return self._ended(request, version, on, NO_ANSWER)
        self._record(request, version, plain(answer, version, self._names))
        return answer

    def settle(
        self, request: msgspec.Struct, version: int | None = None, *, on: str = "main"
    ) -> Any:
        """As `ask`, again while an error says that it passes: only the last answer is compared.

        How long a transaction takes to end is each broker's own.
        """
        for _ in self.patiently(f"an answer that lasts to {request!r:.200}"):
            answer = self.ask(request, version, on=on)
            if answer is None or TRY_AGAIN.isdisjoint(error_codes(answer)):
                return answer
            self.seen.pop()
        raise AssertionError

    def ask_in_time(
        self, request: msgspec.Struct, version: int | None = None, *, within_s: float
    ) -> Any:
        """As `ask`; whether the answer took longer than that is compared, too. For waits that are far from it."""
        started = time.monotonic()
        answer = self.ask(request, version)
        waited = time.monotonic() - started > within_s
        outcome = {"waited": waited, "answer": self.seen[-1].outcome}
        self.seen[-1] = msgspec.structs.replace(self.seen[-1], outcome=outcome)
        return answer

    def tell(
        self, request: msgspec.Struct, version: int | None = None, *, on: str = "main"
    ) -> None:
        """Send a request that is not to be answered (acks=0): the connection goes on all the same, or is closed."""
        version = _version(request, version)
        connection = self._connection(on)
        try:
            connection.send(fit(request, version), version)
            connection.expect_nothing()
            connection.call(m.ApiVersionsRequest(), 0)
        except (Disconnected, ConnectionError):
            self._ended(request, version, on, CLOSED)
        else:
            self._record(request, version, NO_ANSWER)

    def raw(self, api: str, version: int, body: bytes) -> None:
        """Send the bytes as one frame on a connection of its own; the whole answer is compared, or that there is none."""
        with WireConnection(self.port, timeout_s=ANSWER_WITHIN_S) as connection:
            connection.socket.sendall(len(body).to_bytes(4, "big") + body)
            try:
                outcome: Any = connection.frame().hex()
            except Disconnected:
                outcome = CLOSED
            except TimeoutError:
                outcome = NO_ANSWER
        self.seen.append(Seen(api, version, body.hex(), outcome))

    def note(self, what: str, found: Any) -> None:
        """Something that a client made of the answers; plain data, in which this case's and the broker's names are replaced."""
        self.seen.append(Seen(what, 0, what, self._own_texts(found)))

    def count_as_now(self, from_ms: int) -> None:
        """Times from then on are "now" for the rest of the case."""
        self._names.now_from_ms = from_ms

    def own_text(self, text: str) -> str:
        """The text with what is this broker's own replaced."""
        return self._names.text(text.replace(str(self.port), "<port>"))

    def _own_texts(self, found: Any) -> Any:
        match found:
            case str():
                return self.own_text(found)
            case dict():
                return {str(key): self._own_texts(value) for key, value in found.items()}
            case list() | tuple():
                return [self._own_texts(each) for each in found]
        return found

    # --- what a case needs beforehand

    def get(self, request: msgspec.Struct, version: int | None = None) -> Any:
        """Ask without comparing, again while the broker says that it is not ready."""
        version = _version(request, version)
        answer = self.call(fit(request, version), version)
        plain(answer, version, self._names)  # its ids get their names here
        return answer

    def call(self, request: msgspec.Struct, version: int) -> Any:
        """As `get`, of a request that has the fields of that version alone."""
        for _ in self.patiently(f"an answer to {request!r:.200}"):
            answer = self.connection.call(request, version)
            if TRY_AGAIN.isdisjoint(error_codes(answer)):
                return answer
        raise AssertionError

    def topic(
        self, name: str = "t", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> MadeTopic:
        """A topic of the case's own, led when this returns. config: of keys that are ours alone Kafka is told nothing."""
        full = self.prefix + name
        given = {
            key: value
            for key, value in (config or {}).items()
            if self.product == "ours" or not key.startswith(OWN_KEYS)
        }
        made = self.make_topic(full, partitions, given)
        self._topics[full] = None
        self._know(full, made)
        return MadeTopic(full, made)

    def make_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> bytes:
        """A topic of that very name, led when this returns; its id."""
        kind = m.CreateTopicsRequest
        made = self._made(
            kind.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=config_rows(config or {}),
            )
        )
        self.await_leaders(name, partitions)
        return made

    def own_name(self, name: str) -> str:
        """A name that only this case uses; a topic of that name is deleted with it."""
        self._topics[self.prefix + name] = None
        return self.prefix + name

    def call_id(self, topic_id: bytes, name: str) -> None:
        """Call a topic's id so, and not after a topic that an answer names beside it."""
        self._names.fixed.add(topic_id)
        self._names.known[topic_id] = self._names.known[to_text(topic_id)] = name

    def await_changes(self) -> None:
        """Return when what was changed before shows in every answer: brokers of Kafka follow their controller."""
        for _ in range(
            2
        ):  # a second one shows only when the first was applied by every part of the broker
            self._barriers += 1
            value = str(1_000_000_000 + self._barriers)
            kind = m.IncrementalAlterConfigsRequest
            config = kind.AlterableConfig(name="retention.ms", config_operation=SET, value=value)
            resource = kind.AlterConfigsResource(
                resource_type=CONFIG_TOPIC, resource_name=BARRIER, configs=[config]
            )
            self.get(kind(resources=[resource]))
            for _ in self.patiently("a changed configuration to show"):
                if self._shows_barrier(value):
                    break

    def await_leaders(self, name: str, partitions: int) -> None:
        """Return when the topic's partitions are led: CreateTopics answers before."""
        kind = m.ListOffsetsRequest
        rows = [
            kind.ListOffsetsPartition(partition_index=number, timestamp=-1)
            for number in range(partitions)
        ]
        asked = kind.ListOffsetsTopic(name=name, partitions=rows)
        for _ in self.patiently(f"leaders of {name}"):
            if set(error_codes(self.get(kind(topics=[asked])))) == {ErrorCode.NONE}:
                return

    def await_changes_after(self, request: type[msgspec.Struct]) -> None:
        """`await_changes` if that was a request that changes what the controller knows."""
        if request in CHANGES:
            self.await_changes()

    # ---

    def _shows_barrier(self, value: str) -> bool:
        (result,) = self.get(barrier_question()).results
        return bool(result.configs[0].value == value)

    def _made(self, topic: m.CreateTopicsRequest.CreatableTopic) -> bytes:
        """Id of a new topic."""
        (made,) = self.get(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
        if made.error_code != ErrorCode.NONE:
            raise CaseBroken(f"{self.product} did not make {topic.name}: {made}")
        topic_id: bytes = made.topic_id
        return topic_id

    def _know(self, name: str, topic_id: bytes) -> None:
        """Call a topic's id after the topic."""
        self._names.known[topic_id] = self._names.known[to_text(topic_id)] = f"<id of {name}>"

    def _warm_up(self) -> None:
        """Coordinators are loaded and producer ids at hand when this returns."""
        for kind in (GROUP, TRANSACTION):
            self.get(m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]))
        self.get(m.DescribeGroupsRequest(groups=["g"]))
        for name in (None, f"{OTHER_CASES}warm-up"):
            self.get(m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))

    def patiently(self, what: str) -> Iterator[None]:
        end = time.monotonic() + SHOWN_WITHIN_S
        while True:
            yield
            if time.monotonic() > end:
                raise CaseBroken(f"{self.product}: {SHOWN_WITHIN_S:.0f} s for {what}")
            time.sleep(POLL_S)

    def _connection(self, on: str) -> WireConnection:
        if on not in self._connections:
            self._connections[on] = WireConnection(
                self._port_of(on), on.split("#", maxsplit=1)[0], ANSWER_WITHIN_S
            )
        return self._connections[on]

    def _port_of(self, on: str) -> int:
        """Where the connection of that name goes."""
        del on
        return self.port

    def _ended(self, request: msgspec.Struct, version: int, on: str, outcome: str) -> None:
        self._connections.pop(on).socket.close()
        self._record(request, version, outcome)

    def _record(self, request: msgspec.Struct, version: int, outcome: Any) -> None:
        name = api_of(type(request)).name
        self.seen.append(Seen(name, version, f"{request!r:.2000}", outcome))


def config_rows(config: Mapping[str, str]) -> list[m.CreateTopicsRequest.CreatableTopicConfig]:
    kind = m.CreateTopicsRequest.CreatableTopicConfig
    return [kind(name=key, value=value) for key, value in config.items()]


def barrier_question() -> m.DescribeConfigsRequest:
    """Of what `await_changes` changes."""
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=CONFIG_TOPIC, resource_name=BARRIER, configuration_keys=["retention.ms"]
    )
    return m.DescribeConfigsRequest(resources=[resource])


def _version(request: msgspec.Struct, version: int | None) -> int:
    return api_of(type(request)).max_version if version is None else version

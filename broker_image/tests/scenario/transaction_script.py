"""The language of the transaction scenarios: one command a line, then exactly what comes of it, after `>`.

    config max-timeout=1000 expiration=5000 two-phase=1       before anything else
    init a [continue] [pid=7 epoch=1] [timeout=1000] [version=4] [two-phase=1] [keep=1]
    add a t-0 t-1 [tv=0]      adds partitions to a's transaction; TV2 by default
    verify a t-0              are they in it?
    commit a | abort a        EndTxn version 5, that is TV2; [version=4] is TV1
    mark t-0 [ERROR]          the partition got the markers that are due, or refuses them
    gone t-0                  the topic was deleted
    lookup t-0 missing=t-0    what AddPartitionsToTxn answers if some topic does not exist
    wait 3000                 milliseconds pass
    hold / settle [error]     writes stay uncommitted from here / are committed, or fail
    refuse ERROR              appends fail from here; `refuse NONE` ends it
    ids none | ids some       there are no producer ids left / there are again
    unload / load / crash     another broker takes over; crash is load without an answer to anybody
    epoch 32765               the id's epoch is set, as if many transactions had been
    expire                    ids that were not used for long are forgotten
    show | list [state=Ongoing] [longer=1000] [pattern=t.*] | describe
    why on                    prints the reasons that would be logged, after `!`

All commands are about one transactional id, `tx`. A client remembers the pair that it got; `pid=`, `epoch=` name others.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
from logfleet.transactions.adding import Addition, refused_rows
from logfleet.transactions.listing import wanted_by
from logfleet.transactions.markers import MarkerAnswer, MarkerBook
from logfleet.transactions.records import TransactionRecord, encode
from logfleet.transactions.state import TopicPartition
from logfleet.types import LeaderEpoch, ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    WriteTxnMarkersResponse,
)

from broker_image.tests.scenario.transaction_host import TransactionHost

ID = "tx"
BROKER = 1


@dataclass
class Client:
    """What a producer remembers."""

    producer_id: int = -1
    epoch: int = -1


class Script:
    """Runs commands and reports, line by line, what the coordinator answered."""

    def __init__(self) -> None:
        self.host = TransactionHost()
        self.book = MarkerBook(lambda partition: None if partition in self.gone else BROKER)
        self.gone: set[TopicPartition] = set()
        self.clients: dict[str, Client] = {}
        self.trace: list[str] = []
        self.tells_why = False
        self.coordinator_epoch = 0
        self._seen_replies = 0
        self._seen_lines = 0
        self._requests = 0
        self._commands: dict[str, Callable[[list[str], dict[str, str]], None]] = {
            name.removeprefix("do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("do_")
        }

    def run(self, line: str) -> list[str]:
        """Run one line of commands; returns what came of it."""
        self.trace = []
        for command in line.split(";"):
            name, *words = command.split()
            options = dict(word.split("=", 1) for word in words if "=" in word)
            self._commands[name]([word for word in words if "=" not in word], options)
            self._tell()
        return self.trace

    # -- producers

    def do_init(self, words: list[str], options: dict[str, str]) -> None:
        client = self.clients.setdefault(words[0], Client())
        is_continued = "continue" in words
        request = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=int(options.get("timeout", 60_000)),
            producer_id=int(options.get("pid", client.producer_id if is_continued else -1)),
            producer_epoch=int(options.get("epoch", client.epoch if is_continued else -1)),
            enable2_pc="two-phase" in options,
            keep_prepared_txn="keep" in options,
        )
        version = int(options.get("version", 5))
        self.host.call(self.host.coordinator.init, request, version, self._waiter(words[0]))

    def do_add(self, words: list[str], options: dict[str, str]) -> None:
        asked = self._addition(words, options)
        self.host.call(self.host.coordinator.add, asked, self._waiter(words[0]))

    def do_verify(self, words: list[str], options: dict[str, str]) -> None:
        asked = self._addition(words, options)
        self.host.call(self.host.coordinator.verify, asked, self._waiter(words[0]))

    def do_lookup(self, words: list[str], options: dict[str, str]) -> None:
        missing = {partition_of(word) for word in options["missing"].split(",")}
        rows = refused_rows(
            map(partition_of, words),
            lambda partition: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition in missing else ErrorCode.NONE
            ),
        )
        self.trace.append(row_words(rows))

    def do_commit(self, words: list[str], options: dict[str, str]) -> None:
        self._end(words[0], options, commit=True)

    def do_abort(self, words: list[str], options: dict[str, str]) -> None:
        self._end(words[0], options, commit=False)

    def _end(self, name: str, options: dict[str, str], *, commit: bool) -> None:
        client = self.clients[name]
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=int(options.get("pid", client.producer_id)),
            producer_epoch=int(options.get("epoch", client.epoch)),
            committed=commit,
        )
        version = int(options.get("version", 5))
        self.host.call(self.host.coordinator.end, request, version, self._waiter(name))

    def _addition(self, words: list[str], options: dict[str, str]) -> Addition:
        name, *partitions = words
        client = self.clients.setdefault(name, Client())
        return Addition(
            ID,
            int(options.get("pid", client.producer_id)),
            ProducerEpoch(int(options.get("epoch", client.epoch))),
            frozenset(map(partition_of, partitions)),
            int(options.get("tv", 2)),
        )

    # -- markers

    def do_mark(self, words: list[str], _: dict[str, str]) -> None:
        error = ErrorCode[words.pop()] if words[-1] in ErrorCode.__members__ else ErrorCode.NONE
        written = set(map(partition_of, words))
        self._report(self.book.release())
        response = WriteTxnMarkersResponse(
            markers=[
                WriteTxnMarkersResponse.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=error
                                )
                                for index in topic.partition_indexes
                                if TopicPartition(topic.name, index) in written
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in self.book.take(BROKER)
            ]
        )
        self._report(self.book.answered(BROKER, response))

    def do_gone(self, words: list[str], _: dict[str, str]) -> None:
        self.gone |= set(map(partition_of, words))
        self.book.lost(BROKER)
        self._report(self.book.release())

    def _report(self, answers: list[MarkerAnswer]) -> None:
        for answer in answers:
            self.host.call(self.host.coordinator.marked, answer.key, answer.written)
            if answer.refused is not None:
                self.host.call(self.host.coordinator.given_up, answer.key, *answer.refused)

    def _take_markers(self) -> None:
        due, self.host.markers = self.host.markers, []
        for each in due:
            outcome = "commit" if each.is_commit else "abort"
            names = " ".join(f"{topic}-{index}" for topic, index in sorted(each.partitions))
            self.trace.append(
                f"markers {outcome} {each.key.producer_id}/{each.key.epoch} by TV{each.client_version}: {names}"
            )
            epoch = LeaderEpoch(self.coordinator_epoch)
            self._report(self.book.due(self.host.coordinator, epoch, each, self.host.now_ms))

    # -- the coordinator's surroundings

    def do_config(self, _: list[str], options: dict[str, str]) -> None:
        names = {
            "max-timeout": "max_timeout_ms",
            "expiration": "id_expiration_ms",
            "two-phase": "is_two_phase_commit_enabled",
        }
        changes = {names[name]: int(value) for name, value in options.items()}
        self.host.config = replace(self.host.config, **changes)  # type: ignore[arg-type]
        self.host.load()

    def do_why(self, words: list[str], _: dict[str, str]) -> None:
        self.tells_why = words == ["on"]
        self._seen_lines = len(self.host.log_lines)

    def do_wait(self, words: list[str], _: dict[str, str]) -> None:
        self.host.wait(int(words[0]))

    def do_hold(self, _: list[str], __: dict[str, str]) -> None:
        self.host.holds_commits = True

    def do_settle(self, words: list[str], _: dict[str, str]) -> None:
        error = ErrorCode[words[0]] if words else ErrorCode.NONE
        self.host.holds_commits = error is not ErrorCode.NONE
        self.host.commit(error)

    def do_refuse(self, words: list[str], _: dict[str, str]) -> None:
        self.host.append_error = ErrorCode[words[0]]

    def do_ids(self, words: list[str], _: dict[str, str]) -> None:
        self.host.has_producer_ids = words == ["some"]

    def do_unload(self, _: list[str], __: dict[str, str]) -> None:
        self.book.forget(self.host.coordinator)
        self.host.unload()

    def do_load(self, _: list[str], __: dict[str, str]) -> None:
        self.coordinator_epoch += 1
        self.book.forget(self.host.coordinator)
        self.host.load()

    do_crash = do_load

    def do_epoch(self, words: list[str], _: dict[str, str]) -> None:
        """Store the epoch, and give it to all clients that have the present one."""
        stored = self.host.replayed()[ID]
        for client in self.clients.values():
            if client.epoch == stored.epoch:
                client.epoch = int(words[0])
        changed = msgspec.structs.replace(stored, epoch=ProducerEpoch(int(words[0])))
        record = TransactionRecord(ID, changed)
        self.host.log.append(encode(record))
        self.host.committed_end += 1
        self.host.coordinator.apply(record)

    def do_expire(self, _: list[str], __: dict[str, str]) -> None:
        self.host.expire()

    # -- what is seen

    def do_show(self, _: list[str], __: dict[str, str]) -> None:
        stored = self.host.replayed().get(ID)
        self.trace.append(
            "unknown"
            if stored is None
            else f"{stored.state.wire_name} {stored.producer_id}/{stored.epoch}"
        )

    def do_describe(self, _: list[str], __: dict[str, str]) -> None:
        self.host.call(self.host.coordinator.describe, [ID], self._waiter("admin"))

    def do_list(self, _: list[str], options: dict[str, str]) -> None:
        wanted = wanted_by(
            ListTransactionsRequest(
                state_filters=options["state"].split(",") if "state" in options else [],
                producer_id_filters=[int(options["pid"])] if "pid" in options else [],
                duration_filter=int(options.get("longer", -1)),
                transactional_id_pattern=options.get("pattern"),
            )
        )
        if isinstance(wanted, ErrorCode):
            self.trace.append(wanted.name)
            return
        rows = self.host.coordinator.listed(wanted, self.host.turn().wall_ms)
        listed = [f"{row.transactional_id} {row.transaction_state}" for row in rows if row]
        unknown = [f"no state {name}" for name in wanted.unknown_states]
        self.trace += listed + unknown or ["nothing"]

    # -- answers

    def _waiter(self, name: str) -> tuple[str, int]:
        self._requests += 1
        return name, self._requests

    def _tell(self) -> None:
        self._take_markers()
        for waiter, response in self.host.replies[self._seen_replies :]:
            assert isinstance(waiter, tuple)
            self.trace.append(f"{waiter[0]} {self._words(waiter[0], response)}")
        self._seen_replies = len(self.host.replies)
        if self.tells_why:
            for note in self.host.log_lines[self._seen_lines :]:
                if "why" in note.fields:
                    self.trace.append(f"! {note.event}: {note.fields['why']}")
        self._seen_lines = len(self.host.log_lines)

    def _words(self, name: str, response: object) -> str:
        match response:
            case InitProducerIdResponse(error_code=0) | EndTxnResponse(error_code=0):
                if response.producer_id == -1:
                    return "done"
                client = self.clients[name]
                client.producer_id, client.epoch = response.producer_id, response.producer_epoch
                return f"has {response.producer_id}/{response.producer_epoch}"
            case InitProducerIdResponse() | EndTxnResponse():
                return ErrorCode(response.error_code).name
            case ErrorCode():
                return response.name
            case dict():
                return row_words(response)
            case [DescribeTransactionsResponse.TransactionState() as row]:
                if row.error_code:
                    return ErrorCode(row.error_code).name
                names = [
                    f"{topic.topic}-{index}" for topic in row.topics for index in topic.partitions
                ]
                return " ".join([row.transaction_state, *names])
            case _:
                raise AssertionError(response)


def partition_of(word: str) -> TopicPartition:
    """The partition of a word as t-0."""
    found = re.fullmatch(r"(.+)-(\d+)", word)
    assert found is not None, word
    return TopicPartition(found[1], int(found[2]))


def row_words(rows: dict[TopicPartition, ErrorCode]) -> str:
    """Rows by partition, as t-0=NONE."""
    return " ".join(
        f"{topic}-{index}={error.name}" for (topic, index), error in sorted(rows.items())
    )

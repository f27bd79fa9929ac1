"""The language of the group scenarios: one command a line, then exactly what comes of it, after `>`.

    config initial-delay=3000 max-size=2     before anything else; GroupConfig with dashes
    join a protocols=range,sticky meta=t1 session=10000 rebalance=60000 static=i1 version=9 reason=why
    sync a x=p0 y=p1      a asks for its assignment and, as leader, assigns p0 to x and p1 to y
    beat a | leave a | commit a t-0=5 [generation=3] | fetch t-0 | delete | list | show
    stage 7 t-0=5 [as=a] [version=5]   producer 7 commits offsets in its transaction, for member a or for none
    end 7 | end 7 abort   the marker of producer 7's transaction
    fetch t-0 stable      a fetch with RequireStable
    wait 3000             milliseconds pass
    hold / commit [error] writes stay uncommitted from here / are committed, or fail
    refuse ERROR          appends fail from here; `refuse NONE` ends it
    unload / load / crash another broker takes over; crash is load without a word to anybody
    why on                prints the reasons that would be logged, after `!`

A member is called by the name it first joined under; the script keeps its id and generation. Several
commands may stand in a line, between semicolons. `as old` after a command uses the ids a member had
before it was given new ones.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from logfleet.groups.classic.groups import CLASSIC
from logfleet.groups.classic.join import Caller, Join, protocols_of
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    DeleteGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from broker_image.tests.scenario.group_host import GroupHost

GROUP = "g"


@dataclass
class Client:
    """What a member remembers: what a client remembers of its own joins."""

    member_id: str = ""
    old_member_id: str = ""
    instance: str | None = None
    generation: int = -1


class Script:
    """Runs commands and tells, line by line, what the coordinator answered."""

    def __init__(self) -> None:
        self.host = GroupHost()
        self.clients: dict[str, Client] = {}
        self.trace: list[str] = []
        self.tells_why = False
        self._seen_replies = 0
        self._seen_lines = 0
        self._requests = 0
        self._ids = 0
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

    # -- commands

    def do_config(self, _: list[str], options: dict[str, str]) -> None:
        names = {
            "initial-delay": "initial_rebalance_delay_ms",
            "max-size": "max_size",
            "max-metadata": "offset_metadata_max_bytes",
            "offsets-retention": "offsets_retention_ms",
        }
        changes = {names[name]: int(value) for name, value in options.items()}
        self.host.config = replace(self.host.config, **changes)
        self.host.load()
        self._seen_lines = len(self.host.log_lines)

    def do_why(self, words: list[str], _: dict[str, str]) -> None:
        self.tells_why = words == ["on"]
        self._seen_lines = len(self.host.log_lines)

    def do_join(self, words: list[str], options: dict[str, str]) -> None:
        name, *tail = words
        client = self.clients.setdefault(name, Client())
        client.instance = options.get("static", client.instance)
        version = int(options.get("version", 9))
        meta = options.get("meta", "").encode()
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            member_id="" if tail == ["anew"] else self._member_id(client, tail),
            group_instance_id=client.instance,
            protocol_type=options.get("type", "consumer"),
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=protocol, metadata=meta)
                for protocol in options.get("protocols", "range").split(",")
            ],
            reason=options.get("reason"),
        )
        self._ids += 1
        join = Join(
            request,
            protocols_of(request),
            Caller(name, "/127.0.0.1", version),
            self._waiter(name),
            f"{name}-{self._ids}",
        )
        turn = self.host.turn()
        self.host.coordinator.of(CLASSIC).join(turn, join)
        self.host.run(turn)

    def do_sync(self, words: list[str], options: dict[str, str]) -> None:
        name, *tail = words
        client = self.clients[name]
        protocol = options.pop("protocol", None)
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options.pop("generation", client.generation)),
            member_id=self._member_id(client, tail),
            group_instance_id=client.instance,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=self.clients[member].member_id, assignment=assigned.encode()
                )
                for member, assigned in options.items()
            ],
        )
        turn = self.host.turn()
        self.host.coordinator.of(CLASSIC).sync(turn, request, self._waiter(name))
        self.host.run(turn)

    def do_beat(self, words: list[str], options: dict[str, str]) -> None:
        name, *tail = words
        client = self.clients[name]
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=int(options.get("generation", client.generation)),
            member_id=self._member_id(client, tail),
            group_instance_id=client.instance,
        )
        turn = self.host.turn()
        waiter = self._waiter(name)
        turn.reply(waiter, self.host.coordinator.of(CLASSIC).heartbeat(turn, request))
        self.host.run(turn)

    def do_leave(self, words: list[str], options: dict[str, str]) -> None:
        names = [name for name in words if name != "admin"]
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[
                LeaveGroupRequest.MemberIdentity(
                    member_id="" if "admin" in words else self.clients[name].member_id,
                    group_instance_id=self.clients[name].instance,
                    reason=options.get("reason"),
                )
                for name in names
            ],
        )
        turn = self.host.turn()
        self.host.coordinator.of(CLASSIC).leave(turn, request, self._waiter(",".join(names)))
        self.host.run(turn)

    def do_commit(self, words: list[str], options: dict[str, str]) -> None:
        if not words or words[0] in ErrorCode.__members__:
            self.host.holds_commits = False
            self.host.commit(ErrorCode[words[0]] if words else ErrorCode.NONE)
            return
        name, *tail = words
        client = self.clients.get(name, Client())
        generation = int(options.pop("generation", client.generation))
        metadata = options.pop("metadata", None)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=self._member_id(client, tail),
            group_instance_id=client.instance,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=partition.rpartition("-")[0],
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=int(partition.rpartition("-")[2]),
                            committed_offset=int(offset),
                            committed_metadata=metadata,
                        )
                    ],
                )
                for partition, offset in options.items()
            ],
        )
        turn = self.host.turn()
        self.host.coordinator.commit(turn, request, 9, self._waiter(name))
        self.host.run(turn)

    def do_stage(self, words: list[str], options: dict[str, str]) -> None:
        client = self.clients.get(options.pop("as", ""), Client())
        version = int(options.pop("version", 6))
        metadata = options.pop("metadata", None)
        request = TxnOffsetCommitRequest(
            group_id=GROUP,
            producer_id=int(words[0]),
            producer_epoch=0,
            generation_id_or_member_epoch=int(options.pop("generation", client.generation)),
            member_id=client.member_id,
            group_instance_id=client.instance,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=partition.rpartition("-")[0],
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=int(partition.rpartition("-")[2]),
                            committed_offset=int(offset),
                            committed_metadata=metadata,
                        )
                    ],
                )
                for partition, offset in options.items()
            ],
        )
        turn, waiter = self.host.turn(), self._waiter(words[0])
        self.host.coordinator.commit_in_transaction(turn, request, version, waiter)
        self.host.run(turn)

    def do_end(self, words: list[str], _: dict[str, str]) -> None:
        self.host.end_transaction(int(words[0]), is_commit=words[1:] != ["abort"])

    def do_fetch(self, words: list[str], _: dict[str, str]) -> None:
        require_stable = words[-1:] == ["stable"]
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=word.rpartition("-")[0], partition_indexes=[int(word.rpartition("-")[2])]
            )
            for word in words[: len(words) - require_stable]
        ]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=topics or None)
        turn = self.host.turn()
        self.host.coordinator.fetch(
            turn, group, self._waiter("group"), require_stable=require_stable
        )
        self.host.run(turn)

    def do_delete(self, _: list[str], __: dict[str, str]) -> None:
        turn = self.host.turn()
        self.host.coordinator.delete(turn, [GROUP], self._waiter("group"))
        self.host.run(turn)

    def do_list(self, words: list[str], _: dict[str, str]) -> None:
        groups = self.host.coordinator.list_groups(words, [])
        self.trace += [f"{group.group_id} {group.group_state}" for group in groups] or ["nothing"]

    def do_show(self, _: list[str], __: dict[str, str]) -> None:
        group = self.host.coordinator.describe(GROUP, 6)
        members = " ".join(
            f"{member.client_id}={member.member_assignment.decode() or '-'}"
            for member in group.members
        )
        self.trace.append(f"group {group.group_state} {members}".rstrip())

    def do_wait(self, words: list[str], _: dict[str, str]) -> None:
        self.host.wait(int(words[0]))

    def do_hold(self, _: list[str], __: dict[str, str]) -> None:
        self.host.holds_commits = True

    def do_refuse(self, words: list[str], _: dict[str, str]) -> None:
        self.host.append_error = ErrorCode[words[0]]

    def do_unload(self, _: list[str], __: dict[str, str]) -> None:
        self.host.unload()

    def do_load(self, _: list[str], __: dict[str, str]) -> None:
        self.host.load()

    do_crash = do_load

    # -- answers

    def _member_id(self, client: Client, tail: list[str]) -> str:
        return client.old_member_id if tail == ["as", "old"] else client.member_id

    def _waiter(self, name: str) -> tuple[str, int]:
        self._requests += 1
        return name, self._requests

    def _tell(self) -> None:
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
            case JoinGroupResponse():
                return self._join_words(name, response)
            case SyncGroupResponse(error_code=0):
                return f"assigned {bytes(response.assignment).decode() or 'nothing'}"
            case HeartbeatResponse(error_code=0):
                return "alive"
            case LeaveGroupResponse(error_code=0):
                errors = {ErrorCode(member.error_code).name for member in response.members}
                return "left" if errors == {"NONE"} else " ".join(sorted(errors))
            case SyncGroupResponse() | HeartbeatResponse() | LeaveGroupResponse():
                return ErrorCode(response.error_code).name
            case OffsetCommitResponse():
                errors = {
                    ErrorCode(partition.error_code).name
                    for topic in response.topics
                    for partition in topic.partitions
                }
                return "committed" if errors == {"NONE"} else " ".join(sorted(errors))
            case TxnOffsetCommitResponse():
                staged = {
                    ErrorCode(partition.error_code).name
                    for topic in response.topics
                    for partition in topic.partitions
                }
                return "staged" if staged == {"NONE"} else " ".join(sorted(staged))
            case OffsetFetchResponse.OffsetFetchResponseGroup():
                return self._fetch_words(response)
            case [DeleteGroupsResponse.DeletableGroupResult() as result]:
                return "deleted" if not result.error_code else ErrorCode(result.error_code).name
            case _:
                raise AssertionError(response)

    def _join_words(self, name: str, response: JoinGroupResponse) -> str:
        client = self.clients[name]
        error = ErrorCode(response.error_code)
        if error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            if client.member_id != response.member_id:
                client.old_member_id, client.member_id = client.member_id, response.member_id
            client.generation = response.generation_id
        if error is not ErrorCode.NONE:
            return error.name
        words = f"in generation {response.generation_id} by {response.protocol_name}"
        if response.leader == response.member_id:
            led = sorted(member.member_id.rpartition("-")[0] for member in response.members)
            words += f", leads {' '.join(led)}"
        return words + (", keeps the assignment" if response.skip_assignment else "")

    def _fetch_words(self, response: OffsetFetchResponse.OffsetFetchResponseGroup) -> str:
        if response.error_code:
            return ErrorCode(response.error_code).name
        rows = [
            (f"{topic.name}-{row.partition_index}", ErrorCode(row.error_code), row.committed_offset)
            for topic in response.topics
            for row in topic.partitions
        ]
        words = (f"{at}={error.name if error else offset}" for at, error, offset in rows)
        return " ".join(words) or "nothing"


def steps(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line number, command, expected trace) of a scenario file; comments follow a `#`."""
    number, command, expected = 0, "", list[str]()
    for at, raw in enumerate(path.read_text().splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", raw).rstrip()
        if line.startswith(">"):
            expected.append(line[1:].strip())
        elif line:
            if command:
                yield number, command, expected
            number, command, expected = at, line, []
    if command:
        yield number, command, expected

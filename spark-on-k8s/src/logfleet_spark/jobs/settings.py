"""Settings of a job: options of a command line, or one YAML file of the same names, or both (the command line wins).

submit.sh window_counts -- --settings /etc/job/settings.yaml --trigger "1 minute"

A file is a mapping of option names without dashes; `option: {minPartitions: 4}` stands for `--option minPartitions=4`.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml

Source = Literal["logfleet", "kafka"]
AVAILABLE_NOW = "available-now"


class Parser(argparse.ArgumentParser):
    """A job's parser. A wrong setting, on the command line or in the file, ends with one sentence and exit code 2."""

    def __init__(self, job: str, description: str) -> None:
        super().__init__(
            prog=job,
            description=description,
            allow_abbrev=False,  # an abbreviation would change its meaning with the next release
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument("--settings", metavar="FILE", help="YAML file of these options")

    def settings(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """What the file says, with what the command line says instead. argv None: this process's."""
        given = list(argv) if argv is not None else None
        first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        first.add_argument("--settings")
        path = first.parse_known_args(given)[0].settings
        if path is None:
            return self.parse_args(given)
        import sys

        words = sys.argv[1:] if given is None else given
        return self.parse_args([*self._of_file(path), *words])

    def _of_file(self, path: str) -> Iterator[str]:
        """The file's settings as words of a command line."""
        try:
            # every scalar as it is written: `from: 2013-01-01` is no date yet, `yes` no truth
            read = yaml.load(Path(path).read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506  (BaseLoader makes text only)
        except OSError as problem:
            self.error(f"--settings {path}: {problem.strerror}")
        except yaml.YAMLError as problem:
            self.error(f"--settings {path}: no YAML: {' '.join(str(problem).split())}")
        if not isinstance(read, dict):
            self.error(f"--settings {path}: write a mapping of option names to values")
        for name, value in read.items():
            yield from self._words(path, str(name), value)

    def _words(self, path: str, name: str, value: Any) -> Iterator[str]:
        flag = f"--{name}"
        action = self._option_string_actions.get(flag)
        if action is None or name in {"help", "settings"}:
            known = sorted(
                f.removeprefix("--") for f in self._option_string_actions if f[:2] == "--"
            )
            listed = ", ".join(n for n in known if n not in {"help", "settings"})
            self.error(f"--settings {path}: there is no option {name!r}; there is: {listed}")
        if action.nargs == 0:
            if value not in {"true", "false"}:
                self.error(f"--settings {path}: {name}: write true or false")
            if value == "true":
                yield flag
            return
        repeated = isinstance(action, argparse._AppendAction)  # noqa: SLF001  (no public way to ask)
        if repeated and isinstance(value, dict):
            value = [f"{key}={each}" for key, each in value.items()]
        values = value if repeated and isinstance(value, list) else [value]
        for each in values:
            if not isinstance(each, str):
                self.error(f"--settings {path}: {name}: write one value")
            yield f"{flag}={each}"

    def error(self, message: str) -> NoReturn:
        super().error(message)


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def moment(text: str) -> datetime:
    """A time in ISO 8601; one without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write it as 2013-01-31T06:00:00Z"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; write NAME[,NAME]")
    return found


def add_cluster(parser: Parser) -> None:
    """Where the brokers are, and through what they are asked."""
    add = parser.add_argument
    add("--bootstrap-servers", required=True, help="host:port[,host:port] of the cluster")
    add(
        "--source",
        choices=["logfleet", "kafka"],
        default="logfleet",
        help="our own data source, or Spark's Kafka connector",
    )
    add(
        "--option",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="one more option of the source, such as kafka.group.id=g; may be repeated",
    )
    add_spark(parser)


def add_sink(parser: Parser) -> None:
    """What a job that writes to topics takes besides."""
    add = parser.add_argument
    add("--sink-bootstrap-servers", help="cluster to write to; default: the one that is read")
    add(
        "--sink-option",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="one more option of the sink, such as kafka.compression.type=lz4; may be repeated",
    )


def add_spark(parser: Parser) -> None:
    parser.add_argument(
        "--shuffle-partitions",
        type=positive,
        help="tasks of an aggregation, 8 unless Spark's settings say; a stream keeps those of its first start",
    )


def add_stream(parser: Parser, *, needs_checkpoint: bool = True) -> None:
    """How far a stream goes at once, and where it keeps what it has done."""
    add = parser.add_argument
    add("--starting-offsets", default="earliest", help="where a job without checkpoint starts")
    add("--max-offsets-per-trigger", type=positive, help="records per micro-batch at most")
    add(
        "--checkpoint",
        required=needs_checkpoint,
        help="path or URL of a folder for offsets and state",
    )
    add(
        "--trigger",
        default=AVAILABLE_NOW,
        help=f'"{AVAILABLE_NOW}" (what is there now, then end) or an interval such as "10 seconds"',
    )


def refuse_same(parser: Parser, settings: argparse.Namespace, flags: Iterable[str]) -> None:
    """End with a sentence if two of these options name the same folder or topic."""
    seen: dict[str, str] = {}
    for flag in flags:
        value = getattr(settings, flag.removeprefix("--").replace("-", "_"))
        if value is None:
            continue
        if value.rstrip("/") in seen:
            parser.error(f"{flag} and {seen[value.rstrip('/')]} are both {value}; write another")
        seen[value.rstrip("/")] = flag

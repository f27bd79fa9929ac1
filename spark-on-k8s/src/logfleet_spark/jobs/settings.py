"""Settings of a job: options of a command line, or a YAML file with the same names, or both.

The command line wins.

submit.sh window_counts -- --settings /etc/job/settings.yaml --trigger "1 minute"

A file is a mapping of option names without dashes; `option: {minPartitions: 4}` stands for
`--option minPartitions=4`. Everything that can be checked without Spark is checked before Spark
starts, so that a mistake costs a second instead of half a minute.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import yaml

from logfleet_spark.client_options import OptionError
from logfleet_spark.jobs.records import batch_options, sink_options_of, stream_options
from logfleet_spark.options import sink_options, source_options

Source = Literal["logfleet", "kafka"]
Use = Literal["stream", "batch", "write"]
AVAILABLE_NOW = "available-now"
METRICS_PORT: Final = 8090
"""The port of a driver's metrics; the chart lets Prometheus scrape this port."""
UNITS_MS: Mapping[str, float] = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART: Final = re.compile(rf"(\d+)\s*({'|'.join(UNITS_MS)})s?\b\s*")


class Parser(argparse.ArgumentParser):
    """A job's parser.

    A wrong setting, on the command line or in the file, ends the process with one sentence and exit
    code 2.
    """

    def __init__(self, job: str, description: str) -> None:
        self.options: dict[str, argparse.Action] = {}
        """Options by name, without dashes: the keys that a settings file may have."""
        self._repeated: set[str] = set()
        super().__init__(
            prog=job,
            description=description,
            allow_abbrev=False,  # an abbreviation would change its meaning with the next release
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        super().add_argument("--settings", metavar="FILE", help="YAML file of these options")

    def add_argument(self, *flags: str, **given: Any) -> argparse.Action:
        """Add an option of the job. Its default, if it has one, is appended to its help."""
        default = given.get("default")
        if default and default is not argparse.SUPPRESS:
            given["help"] = f"{given.get('help', '')} (default: %(default)s)".strip()
        action = super().add_argument(*flags, **given)
        name = flags[-1].removeprefix("--")
        if name != "help":
            self.options[name] = action
        if given.get("action") == "append":
            self._repeated.add(name)
        return action

    def settings(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the settings of the file and of the command line, which wins.

        argv: None means the arguments of this process.
        """
        words = list(sys.argv[1:] if argv is None else argv)
        first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        first.add_argument("--settings")
        path = first.parse_known_args(words)[0].settings
        found = self.parse_args([*(self._of_file(path) if path else ()), *words])
        if found.source == "logfleet":
            try:
                _check_options(found)
            except OptionError as problem:
                self.error(f"--option or --sink-option: {problem}")
        return found

    def _of_file(self, path: str) -> Iterator[str]:
        """Yield the file's settings as arguments of a command line."""
        try:
            # every scalar stays text: YAML would turn `since: 2013-01-01` into a date, and `yes` into
            # True
            read = yaml.load(Path(path).read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506  (BaseLoader makes text only)
        except OSError as problem:
            self.error(f"--settings {path}: {problem.strerror}")
        except yaml.YAMLError as problem:
            self.error(f"--settings {path}: not YAML: {' '.join(str(problem).split())}")
        if not isinstance(read, dict):
            self.error(f"--settings {path}: write a mapping of option names to values")
        for name, value in read.items():
            yield from self._words(path, str(name), value)

    def _words(self, path: str, name: str, value: Any) -> Iterator[str]:
        action = self.options.get(name)
        if action is None:
            listed = ", ".join(sorted(self.options))
            self.error(f"--settings {path}: there is no option {name!r}; choose from: {listed}")
        if action.nargs == 0:
            if value not in {"true", "false"}:
                self.error(f"--settings {path}: {name}: write true or false")
            if value == "true":
                yield f"--{name}"
            return
        repeated = name in self._repeated
        if repeated and isinstance(value, dict):
            value = [f"{key}={each}" for key, each in value.items()]
        values = value if repeated and isinstance(value, list) else [value]
        for each in values:
            if not isinstance(each, str):
                self.error(f"--settings {path}: {name}: write one value")
            yield f"--{name}={each}"

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (--help lists the options)\n")


def _check_options(found: argparse.Namespace) -> None:
    """Raise OptionError if our source or sink would refuse an option when Spark plans the query."""
    streaming = bool(getattr(found, "checkpoint", None))
    options = stream_options(found, "t") if streaming else batch_options(found, "t", {})
    source_options(options, streaming=streaming)
    if hasattr(found, "sink_option"):
        sink_options(sink_options_of(found))


def key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; write 0 to 65535")
    return int(text)


def interval_ms(text: str) -> float:
    """Parse a Spark interval such as "1 hour 30 minutes"; return milliseconds.

    Raises ArgumentTypeError. Months and years are refused, as in Spark's windows and triggers,
    because their length varies.
    Source: org.apache.spark.sql.catalyst.util.IntervalUtils.stringToInterval.
    """
    words = text.strip().lower().removeprefix("interval ").strip()
    parts = list(_PART.finditer(words))
    if not parts or "".join(part.group() for part in parts) != words:
        units = ", ".join(UNITS_MS)
        raise argparse.ArgumentTypeError(
            f'{text!r} is not an interval; write a number and a unit, such as "10 minutes" ({units})'
        )
    return sum(int(part.group(1)) * UNITS_MS[part.group(2)] for part in parts)


def interval(text: str) -> str:
    """Check an interval that must be longer than zero."""
    if interval_ms(text) == 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is an interval of no length; write a longer one"
        )
    return text


def delay(text: str) -> str:
    """Check an interval that may be "0 seconds"."""
    interval_ms(text)
    return text


def trigger(text: str) -> str:
    return text if text == AVAILABLE_NOW else delay(text)


def moment(text: str) -> datetime:
    """Parse a time in ISO 8601; without a zone it is UTC."""
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
    """Add the options for the brokers and for the source that reads from them."""
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
    """Add the options of a job that writes to topics."""
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


def add_exactly_once(parser: Parser) -> None:
    """Add the option of a job that can write each micro-batch to topics once."""
    parser.add_argument(
        "--exactly-once",
        action="store_true",
        help="write each micro-batch in one transaction, once: readers of committed records see no record twice",
    )


def check_exactly_once(parser: Parser, settings: argparse.Namespace) -> None:
    """End the process with a sentence if the setting is there and cannot be met."""
    if settings.exactly_once and settings.source != "logfleet":
        parser.error("--exactly-once: Spark's connector cannot; leave out --source kafka")
    if settings.exactly_once and getattr(settings, "sink", "topic") != "topic":
        parser.error("--exactly-once is for --sink topic: leave it out")


def add_spark(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--shuffle-partitions",
        type=positive,
        help="tasks of an aggregation; a stream keeps the number of its first start; default: spark.sql.shuffle.partitions, else 8",
    )
    add(
        "--metrics-port",
        type=port,
        default=METRICS_PORT,
        help="where Prometheus finds the metrics of the driver, at /metrics; 0 for none",
    )
    add(
        "--trace-file",
        metavar="FILE",
        help="where the stack trace of a failure is written, or `-` for standard error; default: a file in the folder of temporary files",
    )


def add_stream(parser: Parser, *, needs_checkpoint: bool = True) -> None:
    """Add the options for the size of a stream's batches and for its checkpoint."""
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
        type=trigger,
        default=AVAILABLE_NOW,
        help=f'"{AVAILABLE_NOW}" (what is there now, then end) or an interval such as "10 seconds"',
    )


def refuse_same(parser: Parser, settings: argparse.Namespace, flags: Iterable[str]) -> None:
    """End the process with a sentence if two of these options name the same folder or topic."""
    seen: dict[str, str] = {}
    for flag in flags:
        value = getattr(settings, flag.removeprefix("--").replace("-", "_"))
        if value is None:
            continue
        place = value.rstrip("/") if "://" in value else str(Path(value))
        if place in seen:
            parser.error(f"{flag} and {seen[place]} are both {place}; write another")
        seen[place] = flag

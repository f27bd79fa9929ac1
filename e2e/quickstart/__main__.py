"""`make quickstart`: one broker, one topic, the flights of 2013 and a Spark job over them.

The job's counts are compared with those of pandas.
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from confluent_kafka import KafkaError, Message, Producer

from e2e.harness import flights
from e2e.harness.java import JavaMissing, find_java
from e2e.harness.kube.fleet import example
from e2e.harness.processes import Rig
from e2e.harness.program import ProgramFailed
from e2e.harness.signals import held, undisturbed
from e2e.harness.watermark import appended_counts
from e2e.quickstart.job import ALL, LATE, Mode, counts, read_batches, run_job

TOPIC_YAML = Path(__file__).resolve().parents[2] / "crds" / "examples" / "topic.yaml"
DELIVERED_S_MAX = 60.0
HOUR = pd.Timedelta(1, "h")


class QuickstartError(Exception):
    """A failure that the user can mend; the text says how."""


def step(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def apply_topic(bootstrap: str) -> None:
    command = [sys.executable, "-m", "logfleet", "apply", "-f", str(TOPIC_YAML)]
    done = subprocess.run([*command, "--bootstrap-server", bootstrap], check=False)
    if done.returncode != 0:
        raise QuickstartError(f"the topic of {TOPIC_YAML} could not be made")


def publish(bootstrap: str, topic: str, table: pd.DataFrame) -> None:
    """Send every flight, in scheduled order, by an unmodified Kafka client.

    Returns when all are acknowledged.
    """
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    config = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 20,
        "delivery.report.only.error": True,
        "log_level": 3,  # errors only: records that are unsent at Ctrl-C are not worth a message
    }
    records = list(flights.records(table))
    started = time.monotonic()
    with held() as check:
        producer = Producer(config)
        for key, value in records:
            while True:
                check()
                try:
                    producer.produce(topic, key=key, value=value, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        give_up = time.monotonic() + DELIVERED_S_MAX
        while len(producer) and time.monotonic() < give_up:
            check()
            producer.flush(0.2)  # short, because Ctrl-C has to wait for this call
    if failed or len(producer):
        raise QuickstartError(
            f"{len(failed) + len(producer)} records were not acknowledged: {failed[:1]}"
        )
    print(f"{len(table):,} records acknowledged in {time.monotonic() - started:.1f} s")


def table_text(ours: pd.DataFrame, theirs: pd.DataFrame, beside: str) -> str:
    """Format departures per airport and the busiest hours, ours beside theirs.

    beside: the heading of their column.
    """
    both = ours.merge(
        theirs, on=["window_start", "origin"], how="outer", suffixes=("_spark", "_pandas")
    )
    lines = [f"origin  windows  departures (Spark on Logfleet)  {beside:>25}"]
    for origin, rows in [*both.groupby("origin"), ("all", both)]:
        spark, alone = rows["count_spark"].sum(), rows["count_pandas"].sum()
        lines.append(f"{origin:<7} {len(rows):>7,}  {spark:>30,.0f}  {alone:>25,.0f}")
    lines.append("\nbusiest hours:")
    lines += [
        f"{row.window_start:%Y-%m-%d %H:%M}  {row.origin}  {row.count_spark:>4.0f}  {row.count_pandas:>4.0f}"
        for row in both.nlargest(5, "count_pandas").itertuples()
    ]
    return "\n".join(lines)


def modelled(bootstrap: str, work: Path) -> pd.DataFrame:
    """Return the counts by Spark's rule for late rows, computed with pandas.

    Raises QuickstartError if no row was late, because the run would then show nothing about them.
    """
    batches = read_batches(bootstrap, work)
    model = appended_counts(batches, HOUR, pd.Timedelta(LATE.watermark))
    print(
        f"By Spark's rule, of {sum(map(len, batches)):,} departures in {len(batches)} micro-batches "
        f"{model.dropped:,} came too late and were dropped, {model.still_open:,} wait in open windows.\n"
    )
    if model.dropped == 0:
        raise QuickstartError("no flight came too late, so this run says nothing about late rows")
    return model.counts


def run(mode: Mode) -> bool:
    """Run the quickstart; return whether the two counts agree.

    All programs that it started have ended, and their files are removed, when it returns or raises.
    """
    find_java(at_least=17, wanted_by="Spark")
    topic = example("topic")["metadata"]["name"]
    table = flights.table().head(mode.flights or flights.TOTAL)
    with contextlib.ExitStack() as stack:
        stack.callback(undisturbed)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logfleet-quickstart-")))
        rig = Rig(work)
        stack.callback(rig.close)
        stack.callback(undisturbed)
        step("1. Start one broker with the embedded metadata store")
        broker = rig.broker()
        print(f"listening on {broker.bootstrap}, data in {broker.data}")
        step("2. Create the topic from the YAML that `kubectl apply` takes")
        apply_topic(broker.bootstrap)
        which = "all flights that" if mode is ALL else f"the first {len(table):,} flights that"
        step(f"3. Publish {which} were to leave New York in 2013, through confluent-kafka")
        publish(broker.bootstrap, topic, table)
        step("4. Count departures per airport and hour with PySpark (about a minute)")
        ours = counts(run_job(rig, broker.bootstrap, topic, mode))
        if mode is LATE:
            theirs, beside = modelled(broker.bootstrap, work), "(Spark's rule in pandas)"
        else:
            theirs, beside = flights.counts(table), "departures (pandas alone)"
        print(table_text(ours, theirs, beside))
    agree = ours.astype({"count": "int64"}).equals(theirs.astype({"count": "int64"}))
    step(f"The two counts {'agree' if agree else 'DIFFER'}.")
    return agree


LATE_TOLD = ("quickstart-late", "10,000 flights and a watermark of 1 h: late ones are dropped")
NEXT = """
Next:
  .venv/bin/logfleet broker                                one broker on 127.0.0.1:9092, data in ./logfleet-data
  .venv/bin/logfleet local --brokers 3 --zones a,b,c       a fleet of processes, etcd included
  .venv/bin/logfleet apply -f crds/examples/topic.yaml     then `logfleet topic list`, `produce`, `consume`
  make {other:<51} {told}
  make e2e                                                 the whole path on a local Kubernetes"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make quickstart", description=__doc__)
    parser.add_argument("--late", action="store_true", help="1 h watermark and append mode")
    options = parser.parse_args()
    # raise SystemExit, so that the context managers clean up
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        agree = run(LATE if options.late else ALL)
    except KeyboardInterrupt:
        print("\nstopped; nothing is left running", file=sys.stderr)
        return 130
    except (QuickstartError, JavaMissing, ProgramFailed) as problem:
        print(f"quickstart: {problem}", file=sys.stderr)
        return 1
    if agree:
        other = ("quickstart", "all flights, none of them late") if options.late else LATE_TOLD
        print(NEXT.format(other=other[0], told=other[1]))
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

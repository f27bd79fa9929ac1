"""`make quickstart`: one broker, one topic, all flights of 2013, a Spark job over them, and the same count without us."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
from confluent_kafka import KafkaError, Message, Producer

from e2e.harness import flights
from e2e.harness.processes import ProgramFailed, Rig
from e2e.harness.watermark import appended_counts

ROOT = Path(__file__).resolve().parents[2]
TOPIC_YAML = ROOT / "crds" / "examples" / "topic.yaml"
JOB = ROOT / "spark-on-k8s" / "jobs" / "window_counts.py"
JAVA_AT_LEAST = 17


class QuickstartError(Exception):
    """Something that the person at the terminal can act on."""


def require_java() -> None:
    install = "install it with: apt-get install openjdk-17-jre-headless"
    java = shutil.which("java", path=os.environ.get("JAVA_HOME", "") + "/bin") or shutil.which(
        "java"
    )
    if java is None:
        raise QuickstartError(
            f"Spark needs Java {JAVA_AT_LEAST} or newer and there is none; {install}"
        )
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', version)
    if not found or int(found.group(1)) < JAVA_AT_LEAST:
        first = (version.splitlines() or ["unreadable"])[0]
        raise QuickstartError(
            f"Spark needs Java {JAVA_AT_LEAST} or newer, found {first}; {install}"
        )


def step(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def apply_topic(bootstrap: str) -> None:
    command = [sys.executable, "-m", "logfleet", "apply", "-f", str(TOPIC_YAML)]
    subprocess.run([*command, "--bootstrap-server", bootstrap], check=True)


def publish(bootstrap: str, topic: str, table: pd.DataFrame) -> None:
    """Every flight, in scheduled order, through an unmodified Kafka client; returns when all are acknowledged."""
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
    )
    started = time.monotonic()
    for key, value in flights.records(table):
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)
    if failed or len(producer):
        raise QuickstartError(
            f"{len(failed) + len(producer)} records were not acknowledged: {failed[:1]}"
        )
    print(f"{len(table):,} records acknowledged in {time.monotonic() - started:.1f} s")


def count_with_spark(bootstrap: str, topic: str, work: Path, *, late: bool) -> Path:
    """Run the job as a user would, `spark-submit` on this machine; returns the folder that it wrote."""
    out, checkpoint = work / "counts", work / "checkpoint"
    mode = (
        ["--watermark", "1 hour", "--output-mode", "append", "--max-offsets-per-trigger", "20000"]
        if late
        else ["--watermark", "24 hours", "--output-mode", "update"]
    )
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[2]"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
        *("--conf", f"spark.sql.warehouse.dir={work / 'warehouse'}"),
        str(JOB),
        *("--bootstrap-servers", bootstrap, "--topic", topic, "--source", "logfleet"),
        *("--fields", flights.FIELDS, "--event-time", "event_time", "--group-by", "origin"),
        *("--window", flights.WINDOW, "--sink", "parquet", "--output", str(out)),
        *("--checkpoint", str(checkpoint), *mode),
    ]
    log = work / "spark.log"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_HOME", None)  # another Spark of this machine is not the one locked here
    with log.open("wb") as stream:
        done = subprocess.run(command, stdout=stream, stderr=stream, env=environment, check=False)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise QuickstartError(f"the Spark job failed; the end of its log:\n{tail}")
    return out


def newest(out: Path) -> pd.DataFrame:
    """The job's result: update mode writes a window again whenever it grows, so its newest row wins."""
    rows = pd.read_parquet(out)
    rows["batch_id"] = rows["batch_id"].astype(int)
    rows["window_start"] = rows["window_start"].dt.tz_localize(None)
    return (
        rows.sort_values("batch_id")
        .drop_duplicates(["window_start", "origin"], keep="last")
        .sort_values(["window_start", "origin"], ignore_index=True)[
            ["window_start", "origin", "count"]
        ]
    )


def read_batches(checkpoint: Path, topic: str, bootstrap: str) -> list[pd.DataFrame]:
    """What each micro-batch held, from the offsets in Spark's checkpoint."""
    from logfleet_spark.cluster import Cluster
    from logfleet_spark.offsets import OffsetRange, from_json

    logs = sorted(
        (p for p in (checkpoint / "offsets").iterdir() if p.name.isdigit()),
        key=lambda p: int(p.name),
    )
    ends = [from_json(json.loads(p.read_text().splitlines()[-1])) for p in logs]
    batches, start = [], dict.fromkeys(ends[-1], 0)
    with Cluster(bootstrap) as cluster:
        for end in ends:
            values = [
                record.value
                for tp in sorted(end)
                for chunk in cluster.read(OffsetRange(tp, start.get(tp, 0), end[tp]))
                for record, _ in chunk
            ]
            rows = pd.DataFrame(
                [json.loads(v) for v in values if v], columns=["event_time", "origin"]
            )
            rows["event_time"] = pd.to_datetime(rows["event_time"])
            batches.append(rows.dropna())
            start = end
    assert all(tp.topic == topic for tp in ends[-1])
    return batches


def table_text(ours: pd.DataFrame, theirs: pd.DataFrame) -> str:
    both = ours.merge(
        theirs, on=["window_start", "origin"], how="outer", suffixes=("_spark", "_pandas")
    )
    lines = ["origin  windows  departures (Spark on Logfleet)  departures (pandas alone)"]
    for origin, rows in both.groupby("origin"):
        spark, alone = rows["count_spark"].sum(), rows["count_pandas"].sum()
        lines.append(f"{origin:<7} {len(rows):>7,}  {spark:>30,.0f}  {alone:>25,.0f}")
    spark, alone = both["count_spark"].sum(), both["count_pandas"].sum()
    lines.append(f"{'all':<7} {len(both):>7,}  {spark:>30,.0f}  {alone:>25,.0f}")
    busiest = both.nlargest(5, "count_pandas")
    lines.append("\nbusiest hours:")
    lines += [
        f"{row.window_start:%Y-%m-%d %H:%M}  {row.origin}  {row.count_spark:>4.0f}  {row.count_pandas:>4.0f}"
        for row in busiest.itertuples()
    ]
    return "\n".join(lines)


def run(*, late: bool) -> bool:
    require_java()
    topic = "flights"
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="logfleet-quickstart-")))
        step("1. Start one broker with the embedded metadata store")
        rig = Rig(work)
        stack.callback(rig.close)
        broker = rig.broker()
        print(f"listening on {broker.bootstrap}, data in {broker.data}")
        step("2. Create the topic from the YAML that `kubectl apply` takes")
        apply_topic(broker.bootstrap)
        step("3. Publish all flights that left New York in 2013, through confluent-kafka")
        table = flights.table()
        publish(broker.bootstrap, topic, table)
        step("4. Count departures per airport and hour with PySpark (about half a minute)")
        out = count_with_spark(broker.bootstrap, topic, work, late=late)
        ours = newest(out)
        if late:
            batches = read_batches(work / "checkpoint", topic, broker.bootstrap)
            theirs = appended_counts(batches, pd.Timedelta(1, "h"), pd.Timedelta(1, "h"))
        else:
            theirs = flights.counts(table)
        print(table_text(ours, theirs))
    agree = ours.astype({"count": "int64"}).equals(theirs.astype({"count": "int64"}))
    step(f"The two counts {'agree' if agree else 'DIFFER'}.")
    return agree


NEXT = """
Next:
  .venv/bin/logfleet broker                                one broker on 127.0.0.1:9092, data in ./logfleet-data
  .venv/bin/logfleet local --brokers 3 --zones a,b,c       a fleet of processes, etcd included
  .venv/bin/logfleet apply -f crds/examples/topic.yaml     then `logfleet topic list`, `produce`, `consume`
  make quickstart LATE=1                                   the same with a 1 h watermark: late flights are dropped
  make e2e                                                 the whole path on a local Kubernetes"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make quickstart", description=__doc__)
    parser.add_argument("--late", action="store_true", help="1 h watermark and append mode")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave through the context managers
    try:
        agree = run(late=options.late)
    except KeyboardInterrupt:
        print("\nstopped; nothing is left running", file=sys.stderr)
        return 130
    except (QuickstartError, ProgramFailed) as problem:
        print(f"quickstart: {problem}", file=sys.stderr)
        return 1
    if agree:
        print(NEXT)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

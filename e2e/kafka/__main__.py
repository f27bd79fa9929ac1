"""`python -m e2e.kafka`: the cache holds the jars of Apache Kafka afterwards, and archives of classes.

Tests start Java machines by the hundred, most of them for one call of a tool. Java can start from
classes that an earlier run has read and verified (JEP 350), which halves its work. Without the
archive, or with another Java than the one that wrote it, it reads the jars.
"""

import subprocess
import tempfile
from pathlib import Path

from e2e.harness.kafka import (
    HERE,
    KafkaBroker,
    KafkaUnavailable,
    archive,
    classpath,
    shared_classes,
    tool_command,
)

TOPICS = "org.apache.kafka.tools.TopicCommand"
CREATE = ("--create", "--topic", "t", "--partitions", "3")


def recorded(command: list[str], part: str, to: Path) -> list[str]:
    """The command, so that Java writes an archive when it ends, and starts from none."""
    flags = [each for each in command[1:] if each not in shared_classes(part)]
    return [command[0], f"-XX:ArchiveClassesAtExit={to}", "-Xlog:cds*=off", *flags]


def record_classes(scratch: Path) -> None:
    """Write the archives of a broker that has served a tool, and of that tool."""
    found = {part: scratch / f"{part}.jsa" for part in ("broker", "tools")}
    kafka = KafkaBroker(scratch / "kafka")
    kafka.format()
    kafka.jvm = recorded(["java", *kafka.jvm], "broker", found["broker"])[1:]
    try:
        kafka.start()
        create = tool_command(TOPICS, ["--bootstrap-server", kafka.bootstrap, *CREATE])
        subprocess.run(recorded(create, "tools", found["tools"]), check=True, capture_output=True)
        kafka.stop()
    finally:
        kafka.close()
    for part, made in found.items():
        made.replace(archive(part))


def main() -> None:
    try:
        for pom in sorted(HERE.glob("*.xml")):
            classpath(pom.stem)
    except KafkaUnavailable as missing:
        raise SystemExit(str(missing)) from None
    if not all(archive(part).exists() for part in ("broker", "tools")):
        with tempfile.TemporaryDirectory(dir=archive("broker").parent) as scratch:
            record_classes(Path(scratch))


main()

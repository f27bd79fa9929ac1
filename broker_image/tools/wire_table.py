"""Make `logfleet/wire/table/messages.json` from the message schemas of Apache Kafka's own jars.

Run by hand when the protocol level changes, from the repository's root:

    for artifact in kafka-clients kafka-group-coordinator kafka-metadata kafka-transaction-coordinator; do
        mvn -q dependency:copy -Dartifact=org.apache.kafka:$artifact:4.4.0 -DoutputDirectory=build/jars
    done
    python broker_image/tools/wire_table.py build/jars/*.jar

The table keeps what a codec needs (names, types, versions, tags, nullability, defaults, ignorable), one message a
line, and no prose. The versions of requests and responses are those that a broker of that release advertises: the
latest one is left out while it is marked unstable.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "src" / "logfleet" / "wire" / "table" / "messages.json"

# Kafka advertises these only while a plugin that takes client metrics is configured (KIP-714).
LEFT_OUT = {"GetTelemetrySubscriptions", "PushTelemetry"}
# A broker forwards to the controller with it (KIP-590); it is not on a client's listener.
BETWEEN_BROKERS = {"Envelope"}
# Produce v0-2 are refused but advertised: librdkafka would switch compression off (KAFKA-18659).
ADVERTISED_FROM = {"Produce": 0}
OTHER_MESSAGES = {
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "ControlRecordTypeSchema",
    "DefaultPrincipalData",
    "EndTxnMarker",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "RequestHeader",
    "ResponseHeader",
    "TransactionLogKey",
    "TransactionLogValue",
}
# Records of Kafka's own metadata log, of those a node that it leaves behind is read by (`logfleet adopt`).
METADATA_RECORDS = {
    "AccessControlEntryRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveTopicRecord",
    "TopicRecord",
}

Json = dict[str, Any]


def schemas(jars: list[Path]) -> Iterator[Json]:
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                    text = archive.read(name).decode()
                    yield json.loads(re.sub(r'(?m)^\s*//.*$|\s//[^"\n]*$', "", text))


def api_name(schema: Json) -> str:
    return str(schema["name"]).removesuffix("Request").removesuffix("Response")


def span(versions: str) -> tuple[int, int]:
    low, _, high = versions.partition("-")
    return int(low), int(high or low)


def advertised(requests: list[Json]) -> dict[str, tuple[int, int]]:
    """Name of each API that the table holds -> the versions that have a schema and are stable."""
    row = {}
    for schema in requests:
        name = api_name(schema)
        listed = "broker" in schema.get("listeners", ()) and name not in LEFT_OUT
        if schema["validVersions"] != "none" and (listed or name in BETWEEN_BROKERS):
            low, high = span(schema["validVersions"])
            row[name] = (low, high - bool(schema.get("latestVersionUnstable")))
    return row


def default_of(field: Json) -> int | str | bool | None:
    text = field["default"]
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]
    if text == "null":
        return None
    if field["type"] in {"string", "bytes"}:
        return text
    if field["type"] == "bool":
        return text == "true"
    return int(text, 0)


def field_row(field: Json, structs: dict[str, list[Json]]) -> Json:
    """One field, keys left out where they say what is usual; a nested struct goes to `structs`."""
    row: Json = {"name": field["name"], "type": field["type"]}
    for key, short in (
        ("versions", "versions"),
        ("taggedVersions", "tagged"),
        ("tag", "tag"),
        ("nullableVersions", "nullable"),
        ("flexibleVersions", "flexible"),
    ):
        if field.get(key, "0+") != "0+" or (key in field and key != "versions"):
            row[short] = field[key]
    if "taggedVersions" in field and "versions" not in field:
        row["versions"] = field["taggedVersions"]
    if "default" in field:
        row["default"] = default_of(field)
    if field.get("ignorable"):
        row["ignorable"] = True
    if "fields" in field:
        add_struct(field["type"].removeprefix("[]"), field["fields"], structs)
    return row


def add_struct(name: str, fields: list[Json], structs: dict[str, list[Json]]) -> None:
    if name in structs:
        raise SystemExit(f"struct {name} is declared twice in one message")
    structs[name] = []
    structs[name] = [field_row(field, structs) for field in fields]


def message_row(schema: Json, versions: tuple[int, int]) -> Json:
    structs: dict[str, list[Json]] = {}
    row: Json = {"kind": schema["type"], "versions": list(versions)}
    if "apiKey" in schema:
        row["key"] = schema["apiKey"]
    flexible = schema["flexibleVersions"]
    if flexible != "none":
        row["flexible"] = int(flexible.removesuffix("+"))
    row["fields"] = [field_row(field, structs) for field in schema["fields"]]
    for struct in schema.get("commonStructs", []):
        add_struct(struct["name"], struct["fields"], structs)
    if structs:
        row["structs"] = structs
    return row


def table(all_schemas: list[Json]) -> Iterator[tuple[str, Json]]:
    row = advertised([schema for schema in all_schemas if schema["type"] == "request"])
    for schema in sorted(all_schemas, key=lambda schema: str(schema["name"])):
        name = api_name(schema)
        if schema["type"] in {"request", "response"}:
            if name not in row:
                continue
            message = message_row(schema, row[name])
            if schema["type"] == "request":
                message["advertised"] = name not in BETWEEN_BROKERS
                if name in ADVERTISED_FROM:
                    message["advertised_from"] = ADVERTISED_FROM[name]
        elif schema["name"] in OTHER_MESSAGES | METADATA_RECORDS:
            message = message_row(schema, span(schema["validVersions"]))
        else:
            continue
        yield schema["name"], message


def main(jars: list[Path]) -> None:
    rows = dict(table(list(schemas(jars))))
    missing = (OTHER_MESSAGES | METADATA_RECORDS) - rows.keys()
    if missing:
        raise SystemExit(f"no schema for {sorted(missing)} in {[jar.name for jar in jars]}")
    lines = [
        f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}"
        for name, row in rows.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{TABLE.name}: {len(rows)} messages of {', '.join(sorted(jar.name for jar in jars))}")


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])

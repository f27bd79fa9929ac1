"""Makes docs/reference/configs.md from the table of configuration keys: their meanings and their effect."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from logfleet.config.keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    UpdateMode,
)

_HEAD: Final = """\
# Configuration keys

Made by `make pages` from `logfleet.config.table`; do not edit. All keys of Apache Kafka
4.4.0 for topics, brokers and groups are accepted, with Kafka's names, types and rules. A key that has an effect is listed with
the module that acts on it. Other keys are stored and described, without effect: they are listed at the end of their section, and
DescribeConfigs marks them too.
"""

_CHANGED_BY: Final[Mapping[UpdateMode, str]] = {
    UpdateMode.READ_ONLY: "restart",
    UpdateMode.PER_BROKER: "per broker",
    UpdateMode.CLUSTER_WIDE: "per broker or cluster",
}


def config_docs() -> str:
    """The whole page, in Markdown."""
    sections = (
        (
            "Topics",
            "Set with `logfleet topic`, a Topic resource, or IncrementalAlterConfigs.",
            TOPIC_KEYS,
        ),
        (
            "Brokers",
            (
                "Set in server.properties. `changed` lists what may also be set while a broker runs; "
                "such a value outlives the broker."
            ),
            BROKER_KEYS,
        ),
        (
            "Groups",
            (
                "Set with IncrementalAlterConfigs for a resource of type GROUP (KIP-848, "
                "KIP-932, KIP-1071)."
            ),
            GROUP_KEYS,
        ),
    )
    return "\n".join(
        [
            _HEAD,
            *(
                line
                for title, text, keys in sections
                for line in _section(title, text, keys.values())
            ),
        ]
    )


def _section(title: str, text: str, keys: Iterable[ConfigKey]) -> Iterator[str]:
    keys = list(keys)
    yield f"## {title}\n\n{text}\n"
    effective = [key for key in keys if key.has_effect]
    if effective:
        yield "| key | type | default | valid | importance | changed | acts in | meaning |"
        yield "|---|---|---|---|---|---|---|---|"
        yield from (f"{_facts(key)} | `{key.acts_in}` | {_meaning(key)} |" for key in effective)
        yield ""
    yield f"### {title}: without effect in this version\n"
    yield "| key | type | default | valid | importance | changed | meaning |"
    yield "|---|---|---|---|---|---|---|"
    yield from (f"{_facts(key)} | {_meaning(key)} |" for key in keys if not key.has_effect)
    yield ""


def _facts(key: ConfigKey) -> str:
    default = "" if key.default is None else f"`{key.default}`" if key.default else "empty"
    valid = str(key.valid).replace("|", "\\|")
    changed = _CHANGED_BY.get(key.mode, "any time")
    return (
        f"| `{key.name}` | {key.type.name.lower()} | {default} | {valid} | {key.importance.value} "
        f"| {changed}"
    )


def _meaning(key: ConfigKey) -> str:
    if key.harmless is not None:
        values = " or ".join(("the default", *(f"`{value}`" for value in key.harmless)))
        return (
            f"{key.doc} **Refused** unless {values}: this version does not have what it asks for."
        )
    if not key.sources:
        return key.doc
    sources = ", then ".join(f"`{name}`" for name, _ in key.sources)
    return f"{key.doc} Default: {sources}."

"""Decisions of all brokers, with their causes."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from logfleet.console.sample import Sample

SHOWN_MAX: Final = 200
UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def event_row(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event with `about`, its subject, and `facts_text`."""
    about = ""
    if "topic" in event:
        index = event.get("partition")
        about = event["topic"] if index is None else f"{event['topic']}-{index}"
    elif "broker" in event:
        about = f"broker {event['broker']}"
    facts = ", ".join(f"{name} {_fact(value)}" for name, value in event.get("facts", {}).items())
    return {**event, "about": about, "facts_text": facts}


def since_ms(text: str, now_s: float) -> int:
    """10m, 2h and so on before now, in milliseconds since 1970; 0 for an empty text.

    Raises ValueError.
    """
    if not text:
        return 0
    if (match := re.fullmatch(r"([0-9]{1,5})([smhd])", text)) is None:
        raise ValueError(f"since {text!r}: write 10m (s, m, h or d ago)")
    return int((now_s - int(match[1]) * UNITS_S[match[2]]) * 1000)


def events(sample: Sample, given: Mapping[str, str], now_s: float) -> dict[str, Any]:
    """The newest first, at most SHOWN_MAX. given: kind, topic, broker, since. Raises ValueError."""
    since = since_ms(given.get("since", ""), now_s)
    kind, topic, broker = (given.get(name, "") for name in ("kind", "topic", "broker"))
    if broker and not broker.isdecimal():
        raise ValueError(f"broker {broker!r} is not a number")
    found = [
        event
        for event in reversed(sample.events)
        if event["time_ms"] >= since
        and (not kind or event["kind"] == kind)
        and (not topic or event.get("topic") == topic)
        and (not broker or event.get("broker") == int(broker) or event["by"] == int(broker))
    ]
    return {
        "kinds": sorted({str(event["kind"]) for event in sample.events}),
        "count": len(found),
        "events": [event_row(event) for event in found[:SHOWN_MAX]],
        "supported": any(each.admin_listener for each in sample.brokers.values()),
    }


def _fact(value: object) -> str:
    if isinstance(value, list) and len(value) == 2:
        return " → ".join(map(_plain, value))
    return _plain(value)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

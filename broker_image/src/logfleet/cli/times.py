"""Points in time as people write them: one notation for all options."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

import click

INT64_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
TIMES: Final = (
    "so long ago as 10m (s, m, h or d), 14:00, 2013-01-01T14:00:00Z, or milliseconds since 1970"
)


def parse_time(text: str, now: datetime) -> int:
    """A time in milliseconds since 1970. now: with its time zone. Raises ValueError.

    text: a duration before now, a time of day (the last one), an ISO time (without a zone: in that
    of now), or the number itself.
    """
    if re.fullmatch(r"[0-9]+", text):
        if int(text) > INT64_MAX:
            raise ValueError(f"{text!r}: there are none so large")
        return int(text)
    if match := re.fullmatch(r"([0-9]{1,5})([smhd])", text):
        return max(0, _milliseconds(now - timedelta(**{UNITS[match[2]]: int(match[1])})))
    if re.fullmatch(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?", text):
        try:
            at = datetime.combine(now, time.fromisoformat(text), now.tzinfo)
        except ValueError:
            raise ValueError(f"{text!r}: no day has such a time") from None
        return _milliseconds(at if at <= now else at - timedelta(days=1))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r}: write {TIMES}") from None
    found = _milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo))
    if found < 0:
        # ListOffsets gives negative times other meanings: -1 is the end (Kafka:
        # ListOffsetsRequest.LATEST_TIMESTAMP)
        raise ValueError(f"{text!r}: is before 1970, and no record is so old")
    return found


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """A time span: seconds, as 90, or with a unit, as 500ms, 2s, 10m, 1h, 7d."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds."""
        if not isinstance(value, str):
            return float(value)  # type: ignore[arg-type]  # a default
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)?", value)
        if match is None:
            self.fail(f"{value!r}: write seconds, or 500ms, 2s, 10m, 1h, 7d", param, ctx)
        return float(match[1]) * SECONDS[match[2] or "s"]


SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def here_and_now() -> datetime:
    """The time, in the zone of this machine."""
    return datetime.now().astimezone()


def time_of(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """The callback of an option."""
    try:
        return None if value is None else parse_time(value, here_and_now())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=option) from error

r"""Regular expressions of transactional ids, matched in time that grows with their length only.

Kafka uses RE2 for them, as a match by backtracking may take for ever: it would stop the broker.
This is the automaton of Glushkov, whose states are the characters of the expression: one step per
character of the id. It knows characters, `.`, classes as `[a-z]` and `\d`, groups, `|` and the
repetitions `*`, `+`, `?` and `{n,m}`; `^` and `$` only at the ends.
"""

import re
from dataclasses import dataclass
from typing import Final

LENGTH_MAX: Final = 250
"""Characters of an expression; also characters and groups of what its repetitions unfold to.

The largest takes about 10 ms to prepare.
"""
DEPTH_MAX: Final = 50
CACHED_STEPS_MAX: Final = 1_000

_CHARACTER = re.compile(
    r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDwWsStnrfv]|\\[^a-zA-Z0-9]|[^\\\[\](){}|*+?^$]"
)
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")


class BadPattern(ValueError):
    """Not a regular expression, or one with more than what is known here."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the expression. Sets of its characters are bit masks.

    is_optional: it matches nothing, too. first, last: the characters that a match may begin and end
    with.
    """

    is_optional: bool
    first: int
    last: int


_NOTHING: Final = _Part(True, 0, 0)


class Pattern:
    """A regular expression that the whole of a text has to match. Raises BadPattern."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise BadPattern(f"longer than {LENGTH_MAX} characters")
        self._text = text.removeprefix("^")
        if self._text.endswith("$") and not self._text.endswith(r"\$"):
            self._text = self._text[:-1]
        self._at = self._depth = self._parts = 0
        self._characters: list[re.Pattern[str]] = []
        self._follow: list[int] = []
        self._whole = self._alternatives()
        if self._at < len(self._text):
            raise self._bad()
        self._matching: dict[str, int] = {}
        self._after: dict[int, int] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        possible, matched = self._whole.first, 0
        for character in text:
            matched = possible & self._matching_mask(character)
            if not matched:
                return False
            possible = self._possible_after(matched)
        return bool(matched & self._whole.last) if text else self._whole.is_optional

    # -- matching

    def _matching_mask(self, character: str) -> int:
        mask = self._matching.get(character)
        if mask is None:
            mask = 0
            for at, each in enumerate(self._characters):
                if each.fullmatch(character):
                    mask |= 1 << at
            if len(self._matching) >= CACHED_STEPS_MAX:
                self._matching.clear()
            self._matching[character] = mask
        return mask

    def _possible_after(self, matched: int) -> int:
        possible = self._after.get(matched)
        if possible is None:
            possible = 0
            for at in _bits(matched):
                possible |= self._follow[at]
            if len(self._after) >= CACHED_STEPS_MAX:
                self._after.clear()
            self._after[matched] = possible
        return possible

    # -- parsing

    def _bad(self) -> BadPattern:
        return BadPattern(f"not understood from character {self._at} on")

    def _next_is(self, expected: str) -> bool:
        """Step over what is expected, if it comes next."""
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._next_is("|"):
            other = self._sequence()
            part = _Part(
                part.is_optional or other.is_optional,
                part.first | other.first,
                part.last | other.last,
            )
        return part

    def _sequence(self) -> _Part:
        part = _NOTHING
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            part = self._joined(part, self._repeated())
        return part

    def _repeated(self) -> _Part:
        begin = self._at
        part = self._single()
        least, most = self._count()
        end = self._at
        if most != 1 or least != 1:
            parts = [part]
            for _ in range(max(least, most or 1) - 1):
                self._at = begin
                parts.append(self._single())
            part = _NOTHING
            for number, each in enumerate(parts):
                if most is None and number == len(parts) - 1:
                    self._add_follow(each.last, each.first)
                is_optional = each.is_optional or number >= least
                part = self._joined(part, _Part(is_optional, each.first, each.last))
            self._at = end
            if most == 0:
                part = _NOTHING
        return part

    def _count(self) -> tuple[int, int | None]:
        """How often what came before may come, at least and at most; None is without a bound."""
        counts: tuple[int, int | None] = (1, 1)
        found = _COUNT.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else None
            if max(least, most or 0) > LENGTH_MAX or (most is not None and most < least):
                raise self._bad()
            counts = (least, most)
        elif self._next_is("*"):
            counts = (0, None)
        elif self._next_is("+"):
            counts = (1, None)
        elif self._next_is("?"):
            return 0, 1
        else:
            return counts
        self._next_is("?")  # a shortest match is a match
        return counts

    def _single(self) -> _Part:
        """A character, a class or a group."""
        self._parts += 1
        if self._parts > LENGTH_MAX:
            raise self._bad()
        if self._next_is("("):
            self._depth += 1
            if self._depth > DEPTH_MAX or (self._next_is("?") and not self._next_is(":")):
                raise self._bad()
            part = self._alternatives()
            self._depth -= 1
            if not self._next_is(")"):
                raise self._bad()
            return part
        found = _CHARACTER.match(self._text, self._at)
        if found is None:
            raise self._bad()
        try:
            self._characters.append(re.compile(found[0]))
        except re.error:
            raise self._bad() from None
        self._at = found.end()
        self._follow.append(0)
        mask = 1 << (len(self._characters) - 1)
        return _Part(False, mask, mask)

    def _joined(self, part: _Part, following: _Part) -> _Part:
        self._add_follow(part.last, following.first)
        return _Part(
            part.is_optional and following.is_optional,
            part.first | following.first if part.is_optional else part.first,
            part.last | following.last if following.is_optional else following.last,
        )

    def _add_follow(self, last: int, first: int) -> None:
        for at in _bits(last):
            self._follow[at] |= first


def _bits(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found

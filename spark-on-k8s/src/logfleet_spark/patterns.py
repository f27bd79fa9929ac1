"""Translates Java's regular expressions for topic names to Python's `re`. PURE.

Spark's connector hands `subscribePattern` to java.util.regex.Pattern. Topic names consist of ASCII
letters, digits and `.`, `_`, `-` (org.apache.kafka.common.internals.Topic), so differences in the
treatment of other characters do not matter.
"""

import re

# POSIX classes of java.util.regex.Pattern, as one writes them within brackets in Python
_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "XDigit": "0-9a-fA-F",
    "Space": r"\s",
    # general categories of Unicode, reduced to the characters that a topic's name may contain
    "L": "a-zA-Z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "N": "0-9",
    "Nd": "0-9",
}
_CLASSES |= {f"Is{name}": inside for name, inside in _CLASSES.items()}
_SAME = set("\\.[]{}()*+-?^$|/_<>=!,:;&%#@~\"'` ") | set("dDwWsSbBtnrfv") | set("123456789")
"""Characters that mean the same after a backslash in both languages."""
_TAKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)"
    r"|\\(?P<sign>[pP])(?:\{(?P<long>\w+)\}|(?P<short>[A-Z]))"
    r"|\\k<(?P<again>\w+)>"
    r"|\\(?P<escaped>z|Z|A|h|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
    r"|\(\?<(?P<group>[A-Za-z]\w*)>"
    r"|(?P<bracket>\[\^?\]?|\]|&&)"
    r"|(?P<other>.)",
    re.DOTALL,
)


class PatternError(ValueError):
    """An expression that is wrong in Java or has no counterpart in Python.

    The text names the part.
    """


def java_pattern(text: str) -> re.Pattern[str]:
    """Compile Java's expression as one of Python. Raises PatternError."""
    parts, in_class = [], False
    for found in _TAKEN.finditer(text):
        bracket = found["bracket"]
        if bracket is None:
            parts.append(_part(found, in_class=in_class))
            continue
        if in_class and bracket != "]":
            raise PatternError(
                f"{bracket!r} within a class in brackets: name the characters one by one"
            )
        parts.append(bracket)
        in_class = bracket.startswith("[")
    try:
        return re.compile("".join(parts), re.ASCII)
    except re.error as problem:
        raise PatternError(str(problem)) from None


def _part(found: re.Match[str], *, in_class: bool) -> str:
    if (quoted := found["quoted"]) is not None:
        return re.escape(quoted)
    if (sign := found["sign"]) is not None:
        name = found["long"] or found["short"]
        if name not in _CLASSES or (sign == "P" and in_class):
            raise PatternError(f"\\{sign}{{{name}}}: write the characters in brackets")
        if sign == "P":
            return f"[^{_CLASSES[name]}]"
        return _CLASSES[name] if in_class else f"[{_CLASSES[name]}]"
    if (name := found["again"]) is not None:
        return f"(?P={name})"
    if (name := found["group"]) is not None:
        return f"(?P<{name}>"
    if (escaped := found["escaped"]) is not None:
        return _escaped(escaped, in_class=in_class)
    return found["other"]


def _escaped(what: str, *, in_class: bool) -> str:
    match what:
        case "z" | "Z":
            return r"\Z"
        case "h":
            return r" \t" if in_class else r"[ \t]"
        case "A":
            return r"\A"
        case _ if what in _SAME or (what[0] in "xu" and len(what) > 1):
            return "\\" + what
        case _:
            raise PatternError(f"\\{what} has no counterpart in Python's `re`")

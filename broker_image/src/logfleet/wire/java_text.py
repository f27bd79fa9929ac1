"""Text of bytes that need not be UTF-8, as Java's `new String(bytes, UTF_8)` reads it: so Kafka reads every string (Utils.utf8)."""

import re
from typing import Final

# A surrogate is one malformed sequence for Java, cut short or not, and one per byte for Python; about all else they agree.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_MALFORMED: Final = b"\xff"


def java_text(data: bytes | memoryview) -> str:
    """The text, U+FFFD in it for each malformed sequence: of other bytes it may be the same text."""
    return str(_SURROGATE.sub(_MALFORMED, data), "utf-8", "replace")

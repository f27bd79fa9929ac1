"""Decodes bytes that may not be UTF-8 as Java does.

Kafka uses `new String(bytes, UTF_8)` for every string (Utils.utf8).
"""

import re
from typing import Final

# For Java a surrogate is one malformed sequence, cut short or not, for Python one per byte;
# otherwise they agree.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_MALFORMED: Final = b"\xff"


def java_text(data: bytes | memoryview) -> str:
    """The text, with U+FFFD for each malformed sequence: different bytes may give the same text."""
    return str(_SURROGATE.sub(_MALFORMED, data), "utf-8", "replace")

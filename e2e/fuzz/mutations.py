"""Bytes of a frame changed as a broken or hostile peer would."""

import random
from typing import Final

LENGTHS: Final = (
    b"\x7f\xff\xff\xff",  # int32 and, in its first bytes, int16: as many as there can be
    b"\xff\xff\xff\xff\x07",  # the same as a varint
    b"\x80\x00\x00\x00",  # negative
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a varint that does not end
    b"\x00\x00\x00\x00",
)
KEYS: Final = 100
CHANGES_MAX: Final = 3


def mutate(frame: bytes, dice: random.Random) -> bytes:
    """The frame (without its size) with one to three changes."""
    changed = bytearray(frame)
    for _ in range(dice.randint(1, CHANGES_MAX)):
        if not changed:
            break
        at = dice.randrange(len(changed))
        match dice.randrange(6):
            case 0:
                changed[at] ^= 1 << dice.randrange(8)
            case 1:
                length = dice.choice(LENGTHS)
                changed[at : at + len(length)] = length
            case 2:
                del changed[at:]
            case 3:
                end = min(len(changed), at + dice.randint(1, 20))
                changed[at:at] = changed[at:end] * dice.choice([1, 50])
            case 4:
                changed[at:at] = dice.randbytes(dice.randint(1, 8))
            case _:
                del changed[at : at + dice.randint(1, 8)]
    return bytes(changed)


def nonsense(dice: random.Random) -> bytes:
    """Random bytes; half of them begin like a request header."""
    body = dice.randbytes(dice.choice([0, 1, 7, 8, 30, 300, 5000]))
    if dice.random() < 0.5:
        key, version = dice.randrange(-1, KEYS), dice.randrange(-1, 20)
        client = dice.choice([b"\xff\xff", b"\0\0", b"\0\1x", b"\x7f\xff", b"\xff\xfe"])
        return (
            key.to_bytes(2, "big", signed=True)
            + version.to_bytes(2, "big", signed=True)
            + b"\0\0\0\1"
            + client
            + body
        )
    return body

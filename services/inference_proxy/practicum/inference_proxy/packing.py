"""Token ids and log-probabilities as bytes: little-endian, 4 bytes each."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

TOKEN_BYTES = 4
SWAP = sys.byteorder == "big"


def pack_ids(ids: Sequence[int]) -> bytes:
    """Ids to bytes."""
    return pack(array("i", ids))


def unpack_ids(packed: bytes) -> list[int]:
    """Bytes to ids."""
    ids = array("i", packed)
    if SWAP:
        ids.byteswap()
    return ids.tolist()


def pack_logprobs(values: Sequence[float]) -> bytes:
    """Log-probabilities to bytes, in single precision, as the engine computed them."""
    return pack(array("f", values))


def pack(values: array[int] | array[float]) -> bytes:
    """As little-endian bytes."""
    if SWAP:
        values.byteswap()
    return values.tobytes()

"""Hashes of an append-only log, with proofs that an entry is in it and that it only grew (RFC 6962, section 2.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

Hash = bytes


def leaf_hash(entry: bytes) -> Hash:
    """Of one entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def root_of(leaves: Sequence[Hash]) -> Hash:
    """Of a whole log, from the hashes of its entries."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    split = _split(len(leaves))
    return _node(root_of(leaves[:split]), root_of(leaves[split:]))


def inclusion_path(leaves: Sequence[Hash], index: int) -> list[Hash]:
    """The audit path of entry ``index`` (from 0)."""
    if len(leaves) <= 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_path(leaves[:split], index), root_of(leaves[split:])]
    return [*inclusion_path(leaves[split:], index - split), root_of(leaves[:split])]


def root_by_inclusion(leaf: Hash, index: int, size: int, path: Sequence[Hash]) -> Hash | None:
    """The root that a log of ``size`` entries has if ``leaf`` is entry ``index``; None for a path of a wrong length."""
    if size == 1:
        return leaf if not path else None
    if not path or not 0 <= index < size:
        return None
    split = _split(size)
    if index < split:
        below = root_by_inclusion(leaf, index, split, path[:-1])
        return None if below is None else _node(below, path[-1])
    below = root_by_inclusion(leaf, index - split, size - split, path[:-1])
    return None if below is None else _node(path[-1], below)


def _split(size: int) -> int:
    """The largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1


def _node(left: Hash, right: Hash) -> Hash:
    return hashlib.sha256(b"\x01" + left + right).digest()

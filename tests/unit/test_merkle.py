"""Hashes of the append-only log against the vectors of Certificate Transparency, and proofs of every entry."""

from __future__ import annotations

import pytest

from automedbench.commands._merkle import inclusion_path, leaf_hash, root_by_inclusion, root_of

ENTRIES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
"""Entries and roots of the reference tree in google/certificate-transparency, cpp/merkletree/merkle_tree_test.cc; the
root of no entry is SHA-256 of nothing (RFC 6962, section 2.1)."""
LEAVES = [leaf_hash(entry) for entry in ENTRIES]


@pytest.mark.parametrize("size", ROOTS)
def test_roots(size: int) -> None:
    assert root_of(LEAVES[:size]).hex() == ROOTS[size]


def test_every_entry_can_be_proven_and_no_other() -> None:
    for size in range(1, len(LEAVES) + 1):
        for index in range(size):
            path = inclusion_path(LEAVES[:size], index)
            where = f"entry {index} of {size}"
            assert root_by_inclusion(LEAVES[index], index, size, path) == root_of(LEAVES[:size]), where
            assert root_by_inclusion(leaf_hash(b"other"), index, size, path) != root_of(LEAVES[:size]), where
            assert root_by_inclusion(LEAVES[index], index, size, [*path, LEAVES[0]]) != root_of(LEAVES[:size]), where
            if path:
                assert root_by_inclusion(LEAVES[index], index, size, path[1:]) != root_of(LEAVES[:size]), where

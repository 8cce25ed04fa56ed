"""Every form of a secret that leaves it in one piece is found in a text; the forms are made by the standard library."""

from __future__ import annotations

import base64
from collections.abc import Callable
from urllib.parse import quote

import pytest

from automedbench.base.masking import MASK, masked, secret_among, secret_forms

SECRET = "k3y/with+signs?0123456789"
DATA = SECRET.encode()

FORMS = [
    # id, what stands for the secret
    ("as it is", SECRET),
    ("reversed", SECRET[::-1]),
    ("percent-encoded", quote(SECRET, safe="")),
    ("hexadecimal", DATA.hex()),
    ("hexadecimal, upper case", DATA.hex().upper()),
    ("hexadecimal, reversed", DATA[::-1].hex()),
]


@pytest.mark.parametrize("form", [row[1] for row in FORMS], ids=[row[0] for row in FORMS])
def test_a_form_is_masked_as_a_whole(form: str) -> None:
    assert masked(f"before {form} behind", secret_forms([SECRET])) == f"before {MASK} behind"


@pytest.mark.parametrize("before", [0, 1, 2, 3], ids="{} bytes before it".format)
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_at_every_offset(before: int, encode: Callable[[bytes], bytes]) -> None:
    """Three bytes are four letters: whatever stands around it, fewer than four letters of each end may stay."""
    text = encode(b"<" * before + DATA + b">>>").decode()
    assert MASK in masked(text, secret_forms([SECRET]))


def test_short_ones_are_words() -> None:
    """Six characters are the shortest secret."""
    forms = secret_forms(["sixsix", "fives"])
    assert masked("sixsix fives", forms) == f"{MASK} fives"


def test_the_longest_first() -> None:
    """Of a secret that begins with another nothing stays."""
    assert masked("password-and-more", secret_forms(["password", "password-and-more"])) == MASK


def test_a_word_of_the_agents_own_name_is_no_secret() -> None:
    """What a local server takes for a key; a real one stands in no name."""
    assert secret_among(["Ollama", "sk-1234567890"], ["ollama-qwen/bccd-det-task/lite/r1", "qwen3"]) == (
        "sk-1234567890",
    )

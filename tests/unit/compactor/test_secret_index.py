from __future__ import annotations

import random
import time

import pytest

from compactor.secret_forms import SecretIndex, without_spans

LONG = "".join(chr(33 + number * 7 % 90) for number in range(5_000))


def hidden(text: str, *secrets: str) -> str:
    """Returns `text` with [N] in place of the secret with the number N."""
    index = SecretIndex({secret: f"[{number}]" for number, secret in enumerate(secrets)})
    return without_spans(text, index.spans(text))


@pytest.mark.parametrize(
    ("text", "secrets", "shown"),
    [
        ("it says secret-1.", ("secret-1",), "it says [0]."),
        ("secret-1", ("secret-1",), "[0]"),
        ("secret-1secret-1", ("secret-1",), "[0]"),
        ("secret-1 secret-2", ("secret-1", "secret-2"), "[0] [1]"),
        ("secret-1secret-2", ("secret-1", "secret-2"), "[0][1]"),
        ("a secret-123", ("secret-1", "secret-123"), "a [1]"),
        ("abcdefghijklmnop", ("abcdefgh", "efghijklmnop"), "[1]"),
        ("abcdefghijklmnop", ("abcdefghijk", "hijklmnop"), "[0]"),
        ("secret", ("secret",), "[0]"),
        ("secre", ("secret-1",), "secre"),
        ("", ("secret-1",), ""),
        ("nothing", (), "nothing"),
        (f"x{LONG[:70]}y", (LONG[:70],), "x[0]y"),
        (f"x{LONG[:300]}y", (LONG[:300],), "x[0]y"),
        (f"x{LONG}y", (LONG,), "x[0]y"),
    ],
    ids=range(15),
)
def test_each_secret_is_hidden_as_a_whole(text: str, secrets: tuple[str, ...], shown: str) -> None:
    """Also if it overlaps another, or is longer than what is compared at a time."""
    assert hidden(text, *secrets) == shown


def test_no_secret_is_left_in_any_text() -> None:
    """Held against a search for each."""
    rng = random.Random(7)
    for _ in range(300):
        secrets = ["".join(rng.choices("ab", k=rng.randrange(6, 90))) for _ in range(20)]
        text = "".join(rng.choice([*secrets, "a", "b", "xyz"]) for _ in range(10))
        left = hidden(text, *secrets)
        assert not any(secret in left for secret in secrets)
        if not any(secret in text for secret in secrets):
            assert left == text


def test_who_chooses_secrets_and_text_keeps_nobody_waiting() -> None:
    """Secrets of each length that begin like all of a long text: longer ones are compared in blocks."""
    index = SecretIndex({"a" * length + "b": "x" for length in range(6, 64)})
    text = "a" * 10_000
    began = time.thread_time()
    assert without_spans(text, index.spans(text)) == text
    assert time.thread_time() - began < 0.5

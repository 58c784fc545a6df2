"""What others issue is hidden for as long as it is among the newest, and words are not."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from compactor.secret_forms import SecretIndex, without_spans
from connectors.issued_secrets import IssuedSecrets


@pytest.mark.parametrize(
    ("secret", "is_hidden"),
    [
        ("Xq7opaque", True),
        ("all-lower-case-and-long", True),
        ("table.committed", False),
        ("connectors whose tables could not be committed", False),
        ("short7", False),
    ],
)
def test_what_may_be_a_word_is_not_hidden(secret: str, is_hidden: bool) -> None:
    """A catalog could else choose what operators do not read."""
    issued = IssuedSecrets()
    issued.remember(secret)
    text = f"it said {secret} again"
    assert without_spans(text, issued.spans(text)) == ("it said [hidden] again" if is_hidden else text)


def test_the_newest_are_hidden() -> None:
    """Each commit may come with others; one that is issued again is new."""
    issued = IssuedSecrets(heaviest=5_000)
    names = [f"opaque-{number:04}" for number in range(500)]
    for name in names:
        issued.remember(name)
        issued.remember(names[0])
    text = " ".join(names)
    shown = without_spans(text, issued.spans(text)).split()
    assert (shown[0], shown[1], shown[-1]) == ("[hidden]", names[1], "[hidden]")


def test_nobody_waits_while_a_search_for_them_is_prepared() -> None:
    """Who logs, and who is issued others, goes on; what is prepared late takes the place of nothing newer."""
    begun, go_on = threading.Event(), threading.Event()

    def slow_at_first(shown: Mapping[str, str]) -> SecretIndex:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(60)
        return SecretIndex(shown)

    issued = IssuedSecrets(index=slow_at_first)
    first = threading.Thread(target=issued.remember, args=("Xq7-the-first",))
    first.start()
    assert begun.wait(60)
    others = threading.Thread(target=issued.remember, args=("Xq8-the-second", "Xq9-the-third"), daemon=True)
    others.start()
    others.join(60)
    text = "Xq7-the-first Xq8-the-second Xq9-the-third"
    assert without_spans(text, issued.spans(text)) == "[hidden] [hidden] [hidden]"
    go_on.set()
    first.join(60)
    assert without_spans(text, issued.spans(text)) == "[hidden] [hidden] [hidden]"

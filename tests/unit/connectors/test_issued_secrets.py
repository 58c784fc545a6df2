"""What others issue is hidden for as long as it is among the newest, and words are not."""

from __future__ import annotations

import pytest

from compactor.secret_forms import without_spans
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

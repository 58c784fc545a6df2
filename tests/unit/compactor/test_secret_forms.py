"""In which forms a secret is found in what others write."""

from __future__ import annotations

import pytest

from compactor.secret_forms import HIDDEN, forms_of, without

SECRET = "aW9/kQ2+xT7'<\u00e9!"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(SECRET, id="as it is"),
        pytest.param("aW9\\/kQ2+xT7'<\u00e9!", id="JSON of PHP"),
        pytest.param("aW9/kQ2\\u002BxT7\\u0027\\u003C\\u00E9!", id="JSON of .NET"),
        pytest.param("aW9/kQ2+xT7'\\u003c\u00e9!", id="JSON of Go"),
        pytest.param("aW9/kQ2+xT7&#39;&lt;\u00e9!", id="HTML of Go"),
        pytest.param("aW9/kQ2+xT7&apos;&lt;\u00e9!", id="XML"),
        pytest.param("aW9%2FkQ2%2BxT7%27%3C%C3%A9%21", id="URL"),
    ],
)
def test_a_secret_is_hidden_however_it_is_written(written: str) -> None:
    """Generated passwords have characters that each language escapes in its own way."""
    assert without(f"sent {written} to it", forms_of(SECRET)) == f"sent {HIDDEN} to it"

"""Bars of what stays and what goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.analyze.effect import Amount, Effect
from connectors.ui.what_if.bars import PARTS, WIDTH, bar, drawn, legend, whole_bar

amounts = st.builds(Amount, st.integers(0, 9), st.integers(0, 1 << 50))
GONE = ("retention", "superseded", "expired", "rejected")


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    parts = {field: draw(amounts) for field, *_ in PARTS}
    after = sum((amount for field, amount in parts.items() if field not in GONE), Amount())
    return replace(Effect(before=sum(parts.values(), Amount()), after=after), **parts)


@given(effect=effects())
def test_parts_fill_the_bar_and_what_stays_comes_first(effect: Effect) -> None:
    """Each in proportion, without gaps; the figures are those of the effect."""
    for unit in ("records", "bytes"):
        shown = bar("x", effect, unit)
        assert sum(each.amount for each in shown.shares) == shown.whole
        at = 0.0
        for each in shown.shares:
            assert abs(each.start - at) < 1e-6
            at += each.width
        assert shown.whole == 0 or abs(at - WIDTH) < 1e-6
        stays = [each.amount for each in shown.shares if "gone" not in each.style]
        assert sum(stays) == shown.stays
        assert [each.words for each in shown.shares if "gone" in each.style] == [
            each.words for each in shown.shares[len(stays) :]
        ]


def test_a_bar_says_its_parts_in_words() -> None:
    """For who cannot see it; a bar of nothing too."""
    effect = Effect(before=Amount(4, 40), after=Amount(3, 30), live=Amount(3, 30), superseded=Amount(1, 10))
    svg = drawn(bar("With <changes>", effect, "records"), "records")
    assert "With &lt;changes&gt;, records: last records of their keys 3, superseded by a later record 1" in svg
    assert drawn(bar("x", Effect(), "bytes"), "bytes").count("<rect") == 1
    assert bar("x", effect, "bytes").percent == "75.0 %"
    assert bar("x", Effect(), "bytes").percent == "0 %"
    assert whole_bar("x", effect, "bytes").whole == 40
    assert [words for _, words in legend(effect)] == ["last records of their keys", "superseded by a later record"]

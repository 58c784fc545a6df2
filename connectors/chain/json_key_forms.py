"""Compares keys of JSON by columns: those of a topic differ in some numbers and texts, and all else is the same bytes.

A *form* is the text of a key with holes, in each of which stands a whole number of up to 18 digits, or a simple text.
What a key with other such values means, and how it is written, follows from one key of the form: each value has one
text in JSON, and neither the order of members nor spaces, escapes or other numbers depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from connectors.chain.compared_keys import LONGEST_AT_ONCE, Compared, ComparedParts, Places
from connectors.errors import DataError
from connectors.kept_values import Kept

_NUMBER: Final = r"(?:0|-?[1-9][0-9]{0,17})"
_TEXT: Final = r"[ !#-\[\]-~]*"
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[-0-9][0-9.eE+-]*|[{}\[\]:,]|[ \t\n\r]+|true|false|null')
_HELD_NUMBER: Final = re.compile(_NUMBER)
_HELD_TEXT: Final = re.compile(rf'"({_TEXT})"')
_NAME_END: Final = re.compile(r"[ \t\n\r]*:")
_MOST: Final = 16
"""Forms that are kept: a connector of twenty tables has one or two for each name of a key's column."""
_FEW: Final = 64
"""Until so many keys had no form, none is made: that takes as long as to compare some 20 keys."""
_FEW_KNOWN: Final = 8
"""Keys for each form that is tried in vain: to try one takes as long as to compare some 4 keys."""
_LEARNED: Final = 2
"""Forms that are made of one batch, so that keys which have none cost little."""
_SAMPLE: Final = 32
"""Keys that are looked at for what differs between those of one form."""
_ALL_DIFFER: Final = 4
"""Values of a key up to which any may differ from key to key; of more (a schema in each key), those that were seen."""
_MOST_HOLES: Final = 8
_DEEPEST: Final = 16
_MOST_VALUES: Final = 256


class _Parts(NamedTuple):
    """The text of a key: `literals` stand before, between and after `values`, of which each is of one of `kinds`."""

    literals: tuple[str, ...]
    kinds: tuple[str, ...]
    values: tuple[str, ...]


class _Form(Struct, frozen=True):
    """Keys that begin and end alike, with what matches `middle` in between: all of a key if there is no `suffix`.

    `identity`: the texts before, between and after the holes in what a key is compared by, and the numbers of these
    holes; None if that is the key itself. `holes` are the places of values that differ, with what others have.
    """

    prefix: bytes
    suffix: bytes
    middle: str
    identity: tuple[Sequence[str], Sequence[int]] | None
    encoding: str | None
    holes: frozenset[int]
    values: Sequence[str]

    def add(self, keys: pa.Array, rows: Places, compared: ComparedParts) -> int:
        """Adds those of `keys`, at `rows`, that have this form to `compared`; returns how many."""
        least = len(self.prefix) + len(self.suffix)
        is_own = pc.and_(
            pc.starts_with(keys, pattern=self.prefix),
            pc.and_(pc.ends_with(keys, pattern=self.suffix), pc.greater_equal(pc.binary_length(keys), least)),
        )
        if is_own.true_count < len(keys):
            keys, rows = keys.filter(is_own), rows[is_own.to_numpy(zero_copy_only=False)]
        middles = pc.binary_slice(keys, len(self.prefix), -len(self.suffix)) if self.suffix else keys
        if self.identity is None:
            is_own = pc.match_substring_regex(middles, self.middle)
            rows = rows[is_own.to_numpy(zero_copy_only=False)]
            compared.add_column(rows, None, self.encoding)
            return len(rows)
        held = pc.extract_regex(middles, self.middle)
        texts, holes = self.identity
        parts: list[Any] = [pa.scalar(texts[0].encode(), pa.binary())]
        for hole, text in zip(holes, texts[1:], strict=True):
            parts += [pc.struct_field(held, hole), pa.scalar(text.encode(), pa.binary())]
        identities = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
        compared.add_column(rows, identities, self.encoding)
        return len(held) - int(held.null_count)


class JsonKeyForms:
    """The forms of keys that were met last. `compare` says of one key what it is compared by; it raises DataError."""

    def __init__(self, compare: Callable[[bytes], Compared]) -> None:
        self._compare = compare
        # By the literals and kinds of all values of a key, those that matched last.
        self._forms: Kept[Any, _Form] = Kept(_MOST)
        # How many keys had no form since one was last made of some: portions of a steady load have few keys each.
        self._without = 0

    def add_to(self, compared: ComparedParts, keys: pa.Array) -> None:
        """Adds those of `keys` that have a form to `compared`."""
        is_short = pc.less_equal(pc.binary_length(keys), LONGEST_AT_ONCE).fill_null(fill_value=False)
        left = np.flatnonzero(is_short.to_numpy(zero_copy_only=False))
        left = self._matched(compared, keys, left, self._forms.newest_first())
        self._without += len(left)
        for number in range(_LEARNED):
            if not len(left) or max(len(left), self._without) < _FEW:
                break
            self._without = 0
            first = len(left) * number // _LEARNED
            learned = self._learned(keys.take(pa.array(left[first : first + _SAMPLE])).to_pylist())
            if learned is not None:
                left = self._matched(compared, keys, left, [learned])

    def _matched(
        self, compared: ComparedParts, keys: pa.Array, left: Places, forms: Iterable[tuple[Any, _Form]]
    ) -> Places:
        """Adds keys at `left` that have any of `forms`; returns which are left then."""
        tried = 0
        for kind, form in forms:
            tried += 1
            if len(left) < _FEW_KNOWN * tried:
                break
            own = keys if len(left) == len(keys) else keys.take(pa.array(left))
            if form.add(own, left, compared):
                self._forms.put(kind, form, 0)  # by their number alone
                tried = 0
                is_left = np.zeros(len(keys), np.bool_)
                is_left[left] = True
                rest = compared.rest
                left = rest[is_left[rest]]
        return left

    def _learned(self, keys: Sequence[bytes]) -> tuple[Any, _Form] | None:
        """Returns a form of the first of `keys`, with its place among the forms; None if there is none."""
        first = _parts(keys[0])
        if first is None:
            return None
        kind = first.literals, first.kinds
        known = self._forms.get(kind)
        others = [known.values] if known else []
        others += [parts.values for parts in map(_parts, keys[1:]) if parts is not None and parts[:2] == kind]
        holes = {at for values in others for at, value in enumerate(values) if value != first.values[at]}
        if known is not None:
            holes |= known.holes
        if len(first.values) <= _ALL_DIFFER:
            holes = set(range(len(first.values)))
        if not 0 < len(holes) <= _MOST_HOLES:
            return None
        form = self._made(first, frozenset(holes))
        return None if form is None else (kind, form)

    def _made(self, parts: _Parts, holes: frozenset[int]) -> _Form | None:
        """Makes the form of a key in which the values at `holes` may differ: of a key that has others at these."""
        marks = {at: f"7{at:017}" for at in holes}
        key = _text(parts, marks)
        try:
            compared = self._compare(key.encode())
        except DataError:
            return None
        identity = key if compared.identity is None else compared.identity.decode()
        places = sorted((identity.find(mark), at) for at, mark in marks.items())
        if any(text.count(mark) != 1 for mark in marks.values() for text in (key, identity)):
            return None
        before = re.split("|".join(marks.values()), key)
        ordered = sorted(holes)
        is_held = compared.identity is not None
        middle = "".join(
            (re.escape(literal) if number or not before[-1] else "") + _hole(kind, f"h{number}" if is_held else "")
            for number, (literal, kind) in enumerate(zip(before, [parts.kinds[at] for at in ordered], strict=False))
        )
        own = re.split("|".join(marks.values()), identity), [ordered.index(at) for _, at in places]
        return _Form(
            before[0].encode(), before[-1].encode(), f"^{middle}$", own if is_held else None,
            compared.encoding, holes, parts.values,
        )  # fmt: skip


def _hole(kind: str, name: str) -> str:
    return f"(?P<{name}>{kind})" if name else f"(?:{kind})"


def _text(parts: _Parts, marks: Mapping[int, str]) -> str:
    values = [marks.get(at, value) for at, value in enumerate(parts.values)]
    return "".join(text for pair in zip(parts.literals, [*values, ""], strict=True) for text in pair)


def _parts(key: bytes) -> _Parts | None:
    """Returns the parts of a key; None if it is long, deep, or surely no JSON."""
    if len(key) > LONGEST_AT_ONCE or key.count(b"{") + key.count(b"[") > _DEEPEST:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    literals, kinds, values = [""], list[str](), list[str]()
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        own = token.group()
        if _HELD_NUMBER.fullmatch(own):
            held = own, _NUMBER, ""
        elif (simple := _HELD_TEXT.fullmatch(own)) is not None and _NAME_END.match(text, at) is None:
            held = simple.group(1), _TEXT, '"'
        else:
            literals[-1] += own
            continue
        value, kind, quote = held
        literals[-1] += quote
        values.append(value)
        kinds.append(kind)
        literals.append(quote)
    return _Parts(tuple(literals), tuple(kinds), tuple(values)) if len(values) <= _MOST_VALUES else None

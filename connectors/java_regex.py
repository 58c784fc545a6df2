"""Translates Java regular expressions for topic names to those of the `regex` module.

Kafka Connect's `topics.regex` is a java.util.regex pattern that must match the whole name. `regex` (its version 1
behaviour) means by nearly all of it what Java means: classes within classes and their intersections, possessive
quantifiers, flags that count from their place on. What Java writes in another way is rewritten, properties of
characters to those of ASCII, as topic names are; what would mean something else, or is no Java, is refused with its
position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

_LONGEST: Final = 20_000
"""Characters of a pattern: enough to name a hundred topics by their longest names. It compiles in 0.15 s."""
_REPEATED: Final = 3_000
"""Members that the counts of a pattern may add to its characters: `regex` compiles `a{1000}` to a thousand.

At this size counts take 1 MB, and a connector may have a hundred patterns; at a thousand times of it one takes the
memory of the machine. Topics' names have 249 characters, so more is of no use.
"""
MEMBER_BYTES: Final = 350
"""About how many bytes `regex` takes for a member: 50 for an `a`, 300 for most, 700 for a group that is repeated."""
_IN_CLASS: Final = 4
"""How many characters of a class count as one member: 50 ranges take 7,600 bytes each time that they are compiled."""
_MEMBER: Final = re.compile(r"\\.|\{(?P<least>\d+)(?:,\d*)?\}|.", re.DOTALL)
"""What `_members_of` counts: an escape, a count, or any other character."""
_REFUSED: Final = (
    (r"\(\?(?!:|i\)|i:|-i:)[a-zA-Z]*+-?[a-zA-Z]*+[:)]", "of the inline flags only (?i) is supported"),
    (r"\((?:\*|\?(?![:=!>i-]|<[=!]|<[a-zA-Z][a-zA-Z0-9]*>))", "this is not part of Java's regular expressions"),
    (r"\{(?!\d+(?:,\d*)?\})", 'a "{" that begins no count must be written "\\{"'),
    (r"\(\?i\)[*+?{]", "there is nothing to repeat behind a flag"),
)
_REFUSED_IN_CLASS: Final = (
    (
        r"-(?=[-\[])|(?<=[^\\]\])-(?!\])|(?<!\[)(?<!\[\^)(?<!.-.)-(?=\\[dDwWsSpP])",
        'a "-" that is no range must be written "\\-"',
    ),
    (r"\[:", '":" directly after "[" must be written "\\:"'),
    (r"&&(?=[&\]])|(?:(?<=\[)|(?<=\[\^))&&", '"&&" must have a class on both of its sides'),
)
"""What is refused at its place, outside and inside of a class of characters, and why."""

_PROPERTIES: Final[dict[str, str]] = {
    "Alpha": "a-zA-Z", "L": "a-zA-Z", "IsAlphabetic": "a-zA-Z", "IsL": "a-zA-Z", "IsLetter": "a-zA-Z",
    "Lower": "a-z", "Ll": "a-z", "IsLowercase": "a-z", "javaLowerCase": "a-z",
    "Upper": "A-Z", "Lu": "A-Z", "IsUppercase": "A-Z", "javaUpperCase": "A-Z",
    "Digit": "0-9", "N": "0-9", "Nd": "0-9", "IsDigit": "0-9",
    "Alnum": "a-zA-Z0-9", "XDigit": "0-9a-fA-F", "Punct": "!-/:-@\\[-`{-~", "ASCII": "\\x00-\\x7f",
}  # fmt: skip
"""The ASCII part of Java's properties of characters: after a flag (?i) `regex` takes those of its own otherwise."""
_ESCAPES: Final = "dDwWsSbBAtnrfxu123456789zZ"
_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\k<(?P<back>[a-zA-Z][a-zA-Z0-9]*)>|\(\?<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|\\(?P<sign>[pP])(?:\{(?P<property>\w+)\}|(?P<letter>\w))|\\x\{(?P<hex>[0-9a-fA-F]{1,6})\}|\\.|.",
    re.DOTALL,
)
_REWRITTEN: Final[dict[str, Callable[[str], str]]] = {
    "quoted": re.escape,
    "back": "(?P={})".format,
    "hex": lambda digits: re.escape(chr(int(digits, 16))),
}


class Translated(NamedTuple):
    """A pattern as `regex` has it (ASCII, version 1), and how many members it comes to with its counts written out."""

    text: str
    members: int


def translate(pattern: str) -> Translated:
    """Translates a pattern. Raises ValueError naming the position of what is refused.

    `java_pattern` compiles it, with a limit on the time that a match may take.
    """
    if len(pattern) > _LONGEST:
        raise ValueError(f"it has {len(pattern)} characters; allowed are {_LONGEST}")
    text = _Translation(pattern).run()
    return Translated(text, _members_of(text))


def _members_of(text: str) -> int:
    """Counts the members of a translated pattern. Raises ValueError if its counts add more than _REPEATED.

    `sizes` are those of the open groups, the whole first, `last` is the size of what a count would repeat, `in_class`
    how many characters the open class has so far.
    """
    sizes, last, depth, in_class = [0], 0, 0, 0
    most = len(text) + _REPEATED
    for member in _MEMBER.finditer(text):
        depth += (member[0] == "[") - (member[0] == "]" and depth > 0)
        if depth:
            in_class += len(member[0])
            continue
        if member["least"] is not None:
            repeats = max(1, int(member["least"][:9]))  # a longer one is too large in any case
            sizes[-1] += last * (repeats - 1)
            last *= repeats
        elif member[0] == "(":
            sizes.append(0)
        elif member[0] == ")" and len(sizes) > 1:
            last = sizes.pop() + 1
            sizes[-1] += last
        elif member[0] not in "*+?":
            last, in_class = 1 + in_class // _IN_CLASS, 0
            sizes[-1] += last
        if sizes[-1] > most:
            raise ValueError(f"its counts, as {{1000}}, add more than {_REPEATED} members to it; use lower ones")
    return sum(sizes)


class _Translation:
    """Translates a pattern in one pass: `at` is the position.

    `classes` are the classes of characters that are open, True for those that begin with `[^`, `members` the escapes in
    the outermost of them. `groups` are the positions of the open groups, `names` those that were given.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.classes = list[bool]()
        self.members = set[str]()
        self.groups = list[int]()
        self.names = set[str]()

    def run(self) -> str:
        out = []
        while token := _TOKEN.match(self.pattern, self.at):
            self._check()
            out.append(self._rewritten(token))
            self.at = token.end()
        if self.classes:
            raise self._refusal("a character class is not closed")
        if self.groups:
            self.at = self.groups[-1]
            raise self._refusal("a group is not closed")
        return "".join(out)

    def _refusal(self, why: str) -> ValueError:
        return ValueError(f"{why} (position {self.at})")

    def _check(self) -> None:
        for refused, why in _REFUSED_IN_CLASS if self.classes else _REFUSED:
            if re.compile(refused).match(self.pattern, self.at):
                raise self._refusal(why)

    def _rewritten(self, token: re.Match[str]) -> str:
        kind = token.lastgroup or ""
        if kind in _REWRITTEN:
            return _REWRITTEN[kind](token[kind])
        if kind == "name" and not self.classes:
            return self._named(token)
        if kind in ("property", "letter"):
            return self._property(token)
        return self._escape(token[0]) if token[0][0] == "\\" else self._plain(token[0])

    def _named(self, token: re.Match[str]) -> str:
        if token["name"] in self.names:
            raise self._refusal(f'the name "{token["name"]}" is given twice')
        self.names.add(token["name"])
        self.groups.append(self.at)
        return token[0]

    def _property(self, token: re.Match[str]) -> str:
        members = _PROPERTIES.get(token["property"] or token["letter"])
        if members is None or (self.classes and token["sign"] == "P"):
            raise self._refusal(f"the character class {token[0]} is not supported")
        return members if self.classes else f"[{'^' if token['sign'] == 'P' else ''}{members}]"

    def _escape(self, pair: str) -> str:
        if len(pair) < 2 or (pair[1].isalnum() and pair[1] not in _ESCAPES):
            raise self._refusal(f'"{pair}" is not supported')
        return "\\Z" if pair[1] == "z" else self._member(pair)

    def _member(self, escape: str) -> str:
        """Notes a member of the open class; refuses it with its opposite, as `regex` would lose the negation."""
        opposite = escape.swapcase()
        if any(self.classes) and escape[1].isalpha() and opposite in self.members:
            raise self._refusal(f'"{escape}" and "{opposite}" in one class leave nothing over')
        self.members.add(escape)
        return escape

    def _open_class(self) -> None:
        negated = self.pattern.startswith("[^", self.at)
        if negated and any(self.classes):
            raise self._refusal("a negated class within a negated class is not supported")
        if self.pattern.startswith("]", self.at + 1 + negated):
            self.at += 1 + negated
            raise self._refusal('"]" directly after "[" must be written "\\]"')
        if not self.classes:
            self.members.clear()
        self.classes.append(negated)

    def _plain(self, char: str) -> str:
        if char == "[":
            self._open_class()
        elif self.classes:
            if char == "]":
                self.classes.pop()
            return "\\" + char if char in "|~" else char
        elif char == "(":
            self.groups.append(self.at)
        elif char == ")" and self.groups:
            self.groups.pop()
        return char

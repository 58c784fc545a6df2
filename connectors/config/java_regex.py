"""Java regular expressions for topic names, as Python's `re` understands them.

Kafka Connect's `topics.regex` is a java.util.regex pattern that must match the whole name. Topic names are ASCII,
so Java's classes are translated to their ASCII parts. What would mean something else in Python, or is no Java, is
refused with its position instead of being taken in Python's meaning.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_CLASSES: Final[dict[str, str]] = {
    "Alpha": "a-zA-Z", "L": "a-zA-Z", "IsAlphabetic": "a-zA-Z", "IsL": "a-zA-Z", "IsLetter": "a-zA-Z",
    "Lower": "a-z", "Ll": "a-z", "IsLowercase": "a-z", "javaLowerCase": "a-z",
    "Upper": "A-Z", "Lu": "A-Z", "IsUppercase": "A-Z", "javaUpperCase": "A-Z",
    "Digit": "0-9", "N": "0-9", "Nd": "0-9", "IsDigit": "0-9",
    "Alnum": "a-zA-Z0-9", "XDigit": "0-9a-fA-F", "Punct": "!-/:-@\\[-`{-~", "ASCII": "\\x00-\\x7f",
}  # fmt: skip
_COUNT = re.compile(r"\{\d+(,\d*)?\}")
_NAMED = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_BACK = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\w+)\}|(\w))")
_HEX = re.compile(r"\\x\{([0-9a-fA-F]{1,6})\}")
_FLAGS = re.compile(r"\(\?[a-zA-Z]*-?[a-zA-Z]*[:)]")


@lru_cache(maxsize=64)
def translate(pattern: str) -> re.Pattern[str]:
    """The compiled Python pattern; use `fullmatch`. Raises ValueError naming the position of what cannot be had."""
    text = _Translation(pattern).run()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(text, re.ASCII)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a usable regular expression: {error}") from None


class _Translation:
    """One pass over a pattern: `at` is the position, `inside` is True within a character class."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.inside = False

    def run(self) -> str:
        out = []
        while self.at < len(self.pattern):
            out.append(self._next())
        if self.inside:
            raise self._refusal("a character class is not closed")
        return "".join(out)

    def _next(self) -> str:
        char = self.pattern[self.at]
        if char == "\\":
            return self._escape()
        return (self._in_class if self.inside else self._outside)(char)

    def _take(self, text: str, result: str | None = None) -> str:
        self.at += len(text)
        return text if result is None else result

    def _refusal(self, why: str) -> ValueError:
        return ValueError(f"{why} (position {self.at})")

    def _outside(self, char: str) -> str:
        handlers: dict[str, Callable[[], str]] = {"[": self._open_class, "(": self._group, "{": self._count}
        return handlers[char]() if char in handlers else self._take(char)

    def _open_class(self) -> str:
        head = "[^" if self.pattern.startswith("[^", self.at) else "["
        self._take(head)
        if self.pattern.startswith("]", self.at):
            raise self._refusal('"]" directly after "[" must be written "\\]"')
        self.inside = True
        return head

    def _in_class(self, char: str) -> str:
        if char == "[" or self.pattern.startswith("&&", self.at):
            raise self._refusal("Java's unions and intersections of character classes are not supported")
        if char == "]":
            self.inside = False
        return self._take(char, "\\" + char if char in "|~" else char)

    def _group(self) -> str:
        rest = self.pattern[self.at :]
        named = _NAMED.match(rest)
        if named:
            return self._take(named[0], f"(?P<{named[1]}>")
        if rest.startswith(("(?P", "(?(", "(?#")):
            raise self._refusal(f'"{rest[:3]}" is not part of Java\'s regular expressions')
        if _FLAGS.match(rest) and not rest.startswith(("(?:", "(?i)", "(?i:", "(?-i:")):
            raise self._refusal("of the inline flags only (?i) is supported")
        return self._take("(")

    def _count(self) -> str:
        found = _COUNT.match(self.pattern, self.at)
        if not found:
            raise self._refusal('a "{" that begins no count must be written "\\{"')
        return self._take(found[0])

    def _escape(self) -> str:
        for rule, act in self._escapes().items():
            found = rule.match(self.pattern, self.at)
            if found:
                return self._take(found[0], act(found))
        if self.pattern.startswith("\\Q", self.at):
            return self._quoted()
        return self._plain_escape()

    def _escapes(self) -> dict[re.Pattern[str], Callable[[re.Match[str]], str]]:
        return {
            _BACK: lambda found: f"(?P={found[1]})",
            _PROPERTY: self._property,
            _HEX: lambda found: re.escape(chr(int(found[1], 16))),
        }

    def _property(self, found: re.Match[str]) -> str:
        members = _CLASSES.get(found[2] or found[3])
        if members is None or (found[1] == "P" and self.inside):
            raise self._refusal(f"the character class {found[0]} is not supported")
        return members if self.inside else f"[{'^' if found[1] == 'P' else ''}{members}]"

    def _quoted(self) -> str:
        body, _, _ = self.pattern[self.at + 2 :].partition("\\E")
        self.at += len(body) + 4
        return re.escape(body)

    def _plain_escape(self) -> str:
        pair = self.pattern[self.at : self.at + 2]
        if len(pair) == 2 and pair[1] in "zZ":
            return self._take(pair, "\\Z")
        if len(pair) < 2 or (pair[1].isalnum() and pair[1] not in "dDwWsSbBAtnrfxu123456789"):
            raise self._refusal(f'"{pair}" is not supported')
        return self._take(pair)

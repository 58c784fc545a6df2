"""Which topics a connector reads, and Java's patterns for them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.selection import matches, missing, select
from connectors.errors import ConfigError, PatternError
from connectors.java_pattern import java_pattern

DEAD = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}


def config(**settings: Any) -> ConnectorConfig:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    return ConnectorConfig.model_validate({"name": "c", "connector.class": "CompactedTopic", **given, **DEAD})


@pytest.mark.parametrize(
    ("settings", "existing", "selected"),
    [
        ({"topics": "b,a"}, ["a", "b", "c"], ("b", "a")),
        ({"topics": "b,a"}, ["a"], ("a",)),
        ({"topics.regex": "."}, ["b", "a", "aa"], ("a", "b")),
        ({"topics.regex": ".*"}, ["a", "__consumer_offsets", "dead"], ("a",)),
        ({"topics.regex": ".*"}, ["a", "a.compacted"], ("a",)),
        ({"topics.regex": ".*"}, ["gone.compacted"], ()),
        ({"topics.regex": ".*"}, ["a.compacted.compacted", ".compacted"], (".compacted",)),
        ({"topics.regex": "[ab].*"}, ["a", "c.compacted", "a.compacted"], ("a",)),
        ({"topics.regex": "x|c\\..*"}, ["x", "c.x", "c.y"], ("c.x", "c.y", "x")),
        ({"topics.regex": "x|c\\..*", "output.topic": "c.${topic}"}, ["x", "c.x", "c.y"], ("c.y", "x")),
        ({"topics.regex": ".*", "output.topic": "none"}, ["a", "a.compacted"], ("a", "a.compacted")),
        ({"topics.regex": ".*", "topics.exclude": "a, b.*"}, ["a", "ab", "b", "bc"], ("ab",)),
        ({"topics.regex": "a+", "topics.exclude": "aa"}, ["a", "aa", "b"], ("a",)),
        ({"topics.regex": "a.*", "topics.exclude": "ab"}, ["ab", "ab.compacted"], ()),
        ({"topics.regex": ".*", "topics.exclude": ".*\\.dlq"}, ["a.dlq", "a.dlq.x"], ("a.dlq.x",)),
    ],
)
def test_select(settings: dict[str, Any], existing: list[str], selected: tuple[str, ...]) -> None:
    """Named topics come in their order; a pattern never selects internal, dead letter or own output topics."""
    assert select(config(**settings), existing) == selected


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"topics": "a", "topics.exclude": "a"}, "topics.exclude: has no effect without topics.regex"),
        ({"topics.regex": "a", "topics.exclude": "b,("}, '"(": a group is not closed'),
        ({"topics.regex": "a", "topics.exclude": "b{1,2}"}, "commas stand between patterns"),
        ({"topics.regex": "a", "topics.exclude": "b,,c"}, "has an empty element"),
        (
            {"topics.regex": "a", "topics.exclude": ",".join(map(str, range(51)))},
            "names 51 patterns, and 50 are the most",
        ),
    ],
)
def test_what_cannot_be_left_out(settings: dict[str, Any], said: str) -> None:
    """Patterns are checked one by one, and need topics that are named by a pattern."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        config(**settings)


def test_a_pattern_that_takes_too_long_is_named_by_its_setting() -> None:
    """That of what is left out is another one than that of what is read."""
    slow = config(**{"topics.regex": "a.*", "topics.exclude": "b,(a|aa)+b"})
    with pytest.raises(PatternError, match=r"topics\.exclude: The pattern"):
        matches(slow, "a" * 200)


def test_missing_topics_are_those_named_and_absent() -> None:
    """A named topic that does not exist is missing; a pattern misses nothing."""
    assert missing(config(topics="a,b"), ["b"]) == ("a",)
    assert missing(config(**{"topics.regex": "a"}), []) == ()


def test_own_topics() -> None:
    """Output topics, also a fixed one, and the dead letter topic are our own."""
    fixed = config(topics="a", output__topic="out")
    assert [matches(fixed, name) for name in ("a", "out", "dead")] == [True, False, False]
    every = config(**{"topics.regex": "(a|b)-\\1|dead|.*compacted|__x"})
    names = ("a-a", "a-b", "dead", "a-a.compacted", "z.compacted", "__x")
    assert [matches(every, name) for name in names] == [True, False, False, False, True, False]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.*", "abc", "xabc"),
        ("a", "a", "ab"),
        (r"\Qa.b\E.*", "a.bc", "axbc"),
        (r"(?<x>a|b)\k<x>", "aa", "ab"),
        (r"\p{Alpha}+", "abC", "ab1"),
        (r"[\p{Digit}x]+", "1x2", "1y"),
        (r"\P{L}+", "123", "a"),
        ("orders|payments", "orders", "orders2"),
        ("(?i)ABC", "aBc", "abd"),
        (r"[^.]+\.cdc", "a.cdc", "a.b.cdc"),
        ("a{2,3}+b", "aab", "ab"),
        (r"a\z", "a", "ab"),
        (r"\w+-\d+", "a_b-12", "a-b"),
        ("[a-z||]+", "ab", "A"),
        (r"\x{61}+", "aa", "b"),
        ("(?>a|ab)c", "ac", "abc"),
        ("(?!test).*", "prod", "test1"),
        ("a[b&&c]?", "a", "ab"),
        ("[a-z&&[^b-d]]+", "aex", "abx"),
        ("[[a]b]+", "ab", "abc"),
        ("[^a[b]]", "c", "b"),
        (r"[\s\S]+", "a.b-C", ""),
        (r"[\w&&[^\d]]+", "a_b", "a1b"),
        (r"(?i)\p{Upper}+", "abC", "ab1"),
        ("a(?i)b", "aB", "AB"),
        ("(?<=a{1,3})b|aab", "aab", "b"),
    ],
)
def test_java_patterns(pattern: str, yes: str, no: str) -> None:
    """A Java pattern matches the whole name and means what java.util.regex makes of it (each line was asked of it)."""
    assert java_pattern(pattern).matches(yes)
    assert not java_pattern(pattern).matches(no)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a[b&&]", "position 3"), ("[]a]", "position 1"), ("a{", "position 1"), ("(?P<x>a)", "position 0"),
        ("(?#c)a", "position 0"), ("[[:alpha:]]", "position 1"), ("a{,3}", "position 1"), ("[a--b]", "position 2"),
        (r"\y", "position 0"), ("x(?x)a b", "position 1"), ("a(b", "position 1"), ("*a", "position 0"),
        ("a\\", "position 1"), ("[a", "position 2"), (r"\p{Greek}", "position 0"), ("(?<x>a)(?<x>b)", "position"),
        ("a[&&b]", "position 2"), (r"[^\d\D]", "position 4"), (r"[^a[^b]]", "position 3"), ("[a-[b]]", "position 2"),
        ("a(*b)", "position 1"), ("(?|a)", "position 0"), (r"[a-\d]", "position 2"), ("(?i)+", "position 0"),
    ],
)  # fmt: skip
def test_what_java_or_python_cannot_is_refused(pattern: str, said: str) -> None:
    """A pattern that Java refuses, or that Python would take in another sense, is refused with its position."""
    with pytest.raises(ValueError, match=said):
        java_pattern(pattern)

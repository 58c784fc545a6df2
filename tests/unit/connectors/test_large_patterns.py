"""Whatever a pattern is made of, the largest that is taken compiles in little memory and time, and few are kept."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest

from connectors.chain.chain import Chain
from connectors.chain.routing import routed
from connectors.chain.spec import chain_spec
from connectors.java_pattern import JavaPattern, JavaPatterns, java_pattern
from connectors.java_regex import translate

LONG: Final = 5_000
"""Characters that are written out: a pattern may have four times as many."""
MOST: Final = 20_000
"""The highest count that is tried."""
ROOM: Final = 24 << 20
"""Bytes that a pattern may take while it is compiled."""
SCATTERED: Final = "".join(chr(0x4E00 + 2 * number) for number in range(4_500))
"""Characters of which no two are neighbours: a class has each of them by itself."""
RANGES: Final = "".join(f"{chr(0x400 + 4 * number)}-{chr(0x402 + 4 * number)}" for number in range(1_000))

ELEMENTS: Final = {
    "character": "a", "not ASCII": "ä", "any": ".", "escape": r"\d", "edge": r"\b", "start": "^", "hex": r"\x{61}",
    "property": r"\p{Alpha}", "quoted": r"\Qa.b\E",
    "class": "[ab]", "range": "[a-z]", "negated class": "[^a]", "class in a class": "[a[b-c]]",
    "intersection": "[a-z&&[^b]]", "large class": f"[{SCATTERED}]", "ranges": f"[{RANGES}]",
    "classes in a class": f"[{''.join(f'[{member}]' for member in SCATTERED[:2_000])}]",
    "intersections": f"[{'&&'.join(f'[^{member}]' for member in SCATTERED[:1_000])}]",
    "large class without case": f"(?i:[{SCATTERED}])", "ranges without case": f"(?i:[{RANGES}])",
    "alternatives": "(?:a|b)", "no alternatives": "(?:|)", "names": f"(?:{'|'.join(SCATTERED[:4_000])})",
    "group": "(a)", "empty group": "()", "group that may repeat": "(a)+", "group that may be missing": "(a)?",
    "groups in groups": f"{'(' * 50}a{')' * 50}", "atomic group": "(?>a)",
    "ahead": "(?=a)", "not ahead": "(?!a)", "behind": "(?<=a)", "not behind": "(?<!a)", "back reference": r"(a)\1",
    "option": "a?", "lazy": "a*?", "possessive": "a*+", "repeated": "(?:a*)", "count": "a{1,2}",
    "open count": "(?:ab){2,}", "counts in counts": "(?:(?:a{2}){2}){2}", "none": "(?:a{9}){0}",
    "without case": "(?i:a)", "folded to more": "(?i:ﬃ)",
}  # fmt: skip
"""Each element of Java's patterns that is understood."""


def largest(made: Callable[[int], str], most: int) -> str:
    """Returns the pattern with the highest number up to `most` that a bound of its own does not refuse."""
    lowest = 0
    while lowest < most:
        middle = (lowest + most + 1) // 2
        try:
            translate(made(middle))
            lowest = middle
        except ValueError:
            most = middle - 1
    return made(lowest)


@pytest.mark.parametrize("form", ["written", pytest.param("counted", marks=pytest.mark.long)])
@pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS)
def test_the_largest_pattern_of_each_element_takes_little(element: str, form: str) -> None:
    """As often as it is taken: written out, and with a count."""
    if form == "written":
        pattern = element * (LONG // len(element))
    else:
        pattern = largest(lambda number: f"(?:{element}){{{number}}}", MOST)
    tracemalloc.start()
    try:
        began = time.thread_time()
        compiled = JavaPatterns()(pattern)
        took_s, (kept, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert compiled.group_count <= LONG
    assert (kept < ROOM // 2, peak < ROOM, took_s < 8) == (True, True, True), (kept, peak, took_s)


def test_patterns_are_kept_by_what_they_take() -> None:
    """Of usual ones many, of the largest few; and the one that is asked for again and again is kept."""
    usual = JavaPatterns()
    first = usual("x")
    for number in range(1_000):
        usual(f"topic-{number}\\..*")
    assert usual("x") is first
    large = JavaPatterns(heaviest=16 << 20)
    for number in range(40):
        large("x")
        large(f"{number}[a-z]{{1400}}")
    assert 1 < len(large) < 20
    assert large("x") is large("x")


def test_a_pattern_that_is_too_large_for_all_of_the_room_is_kept_alone() -> None:
    """It is compiled once for as long as no other is asked for."""
    patterns = JavaPatterns(heaviest=1)
    assert patterns("a") is patterns("a")
    patterns("b")
    assert len(patterns) == 1


@pytest.mark.long  # test_patterns_are_kept_by_what_they_take has few
def test_many_patterns_that_are_only_checked_take_no_more_memory() -> None:
    """Neither here nor where they are compiled: each of them has a text of 4 kB."""
    patterns = JavaPatterns(heaviest=1 << 16)
    tracemalloc.start()
    try:
        for number in range(50):
            patterns(f"{number:04}[{SCATTERED[:2_000]}]")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 19, f"{kept >> 20} MiB"


def test_threads_get_one_pattern() -> None:
    """What its matches take is counted once, whoever compiles it first."""
    patterns, start = JavaPatterns(), threading.Barrier(4)
    made = []

    def ask() -> None:
        start.wait(60)
        made.append(patterns("(?:ab){300}"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [each is made[0] for each in made] == [True] * 4


def test_groups_of_a_slow_match_are_kept_if_they_are_small() -> None:
    """Each of these texts has 200 groups of 900 characters; a thousand of them would be 180 MB."""
    pattern = JavaPatterns()(f"(?!(a|aa)+b){'(' * 200}.*{')' * 200}")
    tracemalloc.start()
    try:
        for number in range(40):
            groups = pattern.groups(f"{'a' * 20}c{number:0900}")
            assert groups is not None
            assert len(groups) == 202
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 << 20, f"{kept >> 20} MiB"


def test_who_matches_a_pattern_holds_none() -> None:
    """Chains of many routers with predicates hold no more patterns than are kept in one place."""
    settings = {"transforms": ",".join(f"t{number}" for number in range(20))}
    for number in range(20):
        settings |= {
            f"transforms.t{number}.type": "org.apache.kafka.connect.transforms.RegexRouter",
            f"transforms.t{number}.regex": f"{number}(?:a*){{700}}",
            f"transforms.t{number}.replacement": "x",
            f"transforms.t{number}.predicate": "p",
        }
    settings |= {
        "predicates": "p",
        "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.p.pattern": "a{1000}",
    }
    chains = [Chain(chain_spec(settings), str) for _ in range(2)]
    assert [routed(chain_spec(settings), topic, str) for topic in ("a", "b")] == ["a", "b"]
    java_pattern.clear()
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, JavaPattern)] == []
    assert len(chains) == 2

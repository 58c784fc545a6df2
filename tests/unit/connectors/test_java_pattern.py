"""A pattern of the user's is compiled and matched in bounded time and memory, wherever it is matched."""

from __future__ import annotations

import ast
import threading
import time
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import regex

from compactor.model.record import SOURCE
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.selection import select
from connectors.config.topics import TopicPattern
from connectors.errors import PatternError
from connectors.java_pattern import LONGEST_TEXT, JavaPattern, java_pattern
from connectors.source.topics import SourceTopics
from tests.support.memory.admin import MemoryAdmin

ROOT = Path(__file__).parents[3]
SLOW = "(a|aa)+b"
NAME = "a" * 100
"""A name of a topic that SLOW takes longer to match than the world is old."""
ROUTED = {
    "transforms": "r",
    "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.r.regex": SLOW,
    "transforms.r.replacement": "x",
}
BY_PREDICATE = {
    **ROUTED,
    "transforms.r.regex": "a+",
    "transforms.r.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.p.pattern": SLOW,
}


@pytest.fixture(autouse=True)
def unknown_patterns() -> None:
    """Lets no pattern begin with what it took in another test."""
    java_pattern.clear()


def seconds(began: float) -> float:
    """Returns how long this thread has worked since `began`: other tests run at the same time."""
    return time.thread_time() - began


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (SLOW, NAME),
        ("(a?){300}a{300}b?", NAME * 10),
        ("(?=(a|aa)+[bc])a*", NAME),
        (r"(a|a)*\1\1[bc]", NAME),
        ("((a{1,100}){1,100}){1,100}[bc]", NAME),
        ("(?i)(a|A|aa)+[bc]", NAME * 10),
    ],
    ids=range(6),
)
def test_a_match_that_takes_too_long_is_an_error(pattern: str, text: str) -> None:
    """It ends after 100 ms of work and says which pattern and text; the same text is not tried again."""
    compiled, began = java_pattern(pattern), time.thread_time()
    for _ in range(50):
        with pytest.raises(PatternError, match="more than 100 ms"):
            compiled.matches(text)
    assert seconds(began) < 2


class SteppingClock:
    """Moves on by `step_s` whenever it is asked."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def slow_texts() -> Any:
    """Returns different texts, each of which takes some milliseconds with SLOW."""
    return (f"{'a' * 21}{'c' * number}" for number in count(1))


def test_many_slow_matches_take_no_longer_than_a_second_in_all() -> None:
    """What is just under the limit counts too; in the long run a pattern gets 2 % of the time."""
    clock = SteppingClock(0.0)
    pattern, texts = JavaPattern(SLOW, regex.compile(SLOW), clock, SteppingClock(0.09)), slow_texts()
    answered = list(islice(texts, 12))
    assert not any(map(pattern.matches, answered))
    refused = next(texts)
    with pytest.raises(PatternError, match="1 s already"):
        pattern.matches(refused)
    assert pattern.matches(f"{'a' * 30}b"), "What is matched at once is matched."
    assert not pattern.matches(answered[0]), "What is known is answered."
    clock.now_s += 10
    assert not pattern.matches(refused), "Ten seconds later there is time again."


class CutOffPattern:
    """A pattern of which the first matches are cut off, as `regex` does once other threads have worked for long."""

    def __init__(self, cut_off: int) -> None:
        self._cut_off = cut_off

    def fullmatch(self, text: str, **_: Any) -> regex.Match[str] | None:
        """Matches `text` as `a`."""
        self._cut_off -= 1
        if self._cut_off >= 0:
            raise TimeoutError
        return regex.fullmatch("a", text)


def test_a_busy_process_makes_no_match_slow() -> None:
    """`regex` counts the work of all threads: a match is made again if its own thread has not worked."""
    assert JavaPattern("a", cast("Any", CutOffPattern(4)), worked=lambda: 0.0).matches("a")
    with pytest.raises(PatternError, match="more than 100 ms"):
        JavaPattern("a", cast("Any", CutOffPattern(4)), worked=SteppingClock(0.06)).matches("a")
    with pytest.raises(PatternError, match="more than 100 ms"):
        JavaPattern("a", cast("Any", CutOffPattern(1_000)), worked=lambda: 0.0).matches("a")


def test_other_threads_go_on_while_a_match_is_slow() -> None:
    """The GIL is released; a worker has one thread that answers requests."""
    pattern, turns = java_pattern("(a|aa)+c"), 0

    def match() -> None:
        with pytest.raises(PatternError):
            pattern.matches(NAME)

    thread = threading.Thread(target=match)
    thread.start()
    while thread.is_alive():
        turns += 1
    assert turns > 1_000


@pytest.mark.parametrize(
    "pattern",
    [
        "(((a{1000}){1000}){1000})", "a{100000000}", "(){999999999}", "(?=a){99999999}", f"{'(' * 15}a{'){2}' * 15}",
        "([a-z]{200,300}){200,}", "(?:a{9999999999999999999999})", "a" * 20_001, f"(?{'a' * 19_000})", "(" * 5_000,
        "^{100000}a", r"(a)\1{100000}",
    ],
    ids=range(12),
)  # fmt: skip
def test_a_pattern_that_would_take_much_to_compile_is_refused(pattern: str) -> None:
    """Counts within counts are multiplied before any of it is compiled."""
    began = time.thread_time()
    with pytest.raises(ValueError, match=r"members|characters|inline flags|usable|not closed"):
        java_pattern(pattern)
    assert seconds(began) < 1


def test_patterns_of_use_are_not_refused() -> None:
    """Bounds that follow from the length of names, and a hundred names, are allowed."""
    assert java_pattern(r"([a-z0-9-]{1,249}\.){1,249}[a-z]{1,249}").matches("db.public.orders")
    assert java_pattern("|".join(["topic-" * 20] * 100)).matches("topic-" * 20)


def test_a_text_that_is_no_name_is_not_matched() -> None:
    """A router can make names longer than Kafka's, and they are bounded as well."""
    with pytest.raises(PatternError, match="characters"):
        java_pattern(".*").matches("a" * (LONGEST_TEXT + 1))


def test_routers_cannot_double_a_name_without_end() -> None:
    """Thirty routers that each write the name ten times would need more memory than there is."""
    aliases = [f"r{number}" for number in range(30)]
    settings = {"transforms": ",".join(aliases), "topics": "t"}
    for alias in aliases:
        settings[f"transforms.{alias}.type"] = ROUTED["transforms.r.type"]
        settings[f"transforms.{alias}.regex"] = "(.*)"
        settings[f"transforms.{alias}.replacement"] = "$1" * 10
    with pytest.raises(FaultyConfigError, match=r"transforms\.r3\.regex.*10000 characters"):
        connector(settings)


def connector(settings: dict[str, str]) -> ConnectorConfig:
    return ConnectorConfig.model_validate({"name": "c", "connector.class": "CompactedTopic", **settings})


@pytest.mark.parametrize(
    ("settings", "setting"), [(ROUTED, "transforms.r.regex"), (BY_PREDICATE, "predicates.p.pattern")]
)
def test_a_config_with_a_slow_pattern_is_refused_at_once(settings: dict[str, str], setting: str) -> None:
    """The check of a request ends, and the fault names the pattern's setting."""
    began = time.thread_time()
    with pytest.raises(FaultyConfigError) as raised:
        connector({"topics": ",".join(f"{NAME}{number}" for number in range(100)), **settings})
    assert [fault.key for fault in raised.value.faults] == [setting]
    assert "more than 100 ms" in raised.value.faults[0].text
    assert seconds(began) < 2


@pytest.mark.parametrize("settings", [ROUTED, BY_PREDICATE])
def test_a_record_of_a_topic_that_takes_too_long_is_rejected(settings: dict[str, str]) -> None:
    """So are ten thousand of them, within the time that one takes."""
    reads = {"transforms": "h,r", "transforms.h.type": "InsertHeader", "transforms.h.header": "h"}
    chain = Chain(chain_spec({**settings, **reads, "transforms.h.value.literal": "1"}), str)
    row = {"topic": NAME, "partition": 0, "timestamp": 7, "timestamp_type": 0, "key": b"k", "value": b"v"}
    records = pa.RecordBatch.from_pylist([{**row, "offset": at, "headers": []} for at in range(10_000)], schema=SOURCE)
    began = time.thread_time()
    rejected = chain.apply(records)["rejected"].to_pylist()
    assert all("PatternError" in text and "100 ms" in text for text in rejected)
    assert seconds(began) < 5


def test_a_slow_topics_regex_is_an_error_of_its_connector() -> None:
    """A look at a thousand topics ends with the first, and says which connector and setting."""
    names = [f"{NAME}{number}" for number in range(1_000)]
    config, began = connector({"topics.regex": SLOW}), time.thread_time()
    with pytest.raises(PatternError, match=r"topics\.regex: The pattern"):
        select(config, names)
    with pytest.raises(PatternError, match=r"Connector c: topics\.regex"):
        SourceTopics("c", cast("Any", ListingAdmin(names))).matching(TopicPattern(SLOW))
    assert seconds(began) < 2


class ListingAdmin(MemoryAdmin):
    """Knows names of topics, and is asked for nothing else."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def list_topics(self) -> list[str]:
        """Returns all names."""
        return self._names


def test_only_the_bounded_pattern_is_compiled_from_what_users_wrote() -> None:
    """No other file imports `regex` or translates a pattern, so none can match without a limit."""
    importing = {"regex": set[str](), "connectors.java_regex": set[str]()}
    for path in (*ROOT.glob("connectors/**/*.py"), *ROOT.glob("compactor/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in importing.keys() & set(names):
                importing[name].add(path.name)
    assert importing == {"regex": {"java_pattern.py"}, "connectors.java_regex": {"java_pattern.py"}}

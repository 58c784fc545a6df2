"""`keyfold dlq`, as far as it needs no broker: which letters it is about, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.cli.commands import dlq
from connectors.cli.options import CommandParts
from connectors.errors import ConflictError
from connectors.operations.redrive.letters import Letter, LetterFilter
from connectors.operations.redrive.plan import RedrivenRecords, RedrivePosition, RedriveSelection
from connectors.operations.redrive.run import LetterFates, RedriveResult
from tests.support.cli import connector_file, invoke, worker_file

HOSTILE = "\x1b[2J\nletter 9/9\u202e\x9b"
FEW = RedriveResult({"t": 2}, {"left by the filters": 1}, 3)


def letter(partition: int, offset: int, **context: str) -> Letter:
    """Returns a letter with a context."""
    said = {name.replace("_", "."): text for name, text in context.items()}
    return Letter(partition, offset, 0, b"k%d" % offset, b"\xff\n" * 60, (("h", None),), said)


LETTERS = [
    letter(0, 1, topic="t", stage="TASK_PUT", class_name="keyfold.CompactedTopic"),
    letter(0, 2, topic="u", stage="VALUE_CONVERTER", class_name="keyfold.Json"),
    letter(1, 1, topic="t", stage="VALUE_CONVERTER", class_name="keyfold.Avro"),
    letter(1, 2),
]


class Letters:
    """Stands for a dead letter topic, and notes what redrives were asked for."""

    topic = "dead"

    def __init__(self) -> None:
        self.kept = LETTERS
        self.result = FEW
        self.nothing: str | None = None
        self.refusal: Exception | None = None
        """What a question for positions raises."""
        self.asked: list[tuple[RedriveSelection, dict[str, Any]]] = []

    def letters(self, partition: int | None = None) -> Iterator[Letter]:
        return (one for one in self.kept if partition in (None, one.partition))

    def absent(self) -> str | None:
        return self.nothing

    def fates(self) -> LetterFates:
        if self.refusal is not None:
            raise self.refusal
        return LetterFates("c", {0: RedrivePosition(2)}, RedrivenRecords("c"))

    def strange(self, asked: LetterFilter) -> Iterator[str]:
        yield f"strange: {asked.topic} {asked.class_name}"

    def redrive(self, selection: RedriveSelection, **how: Any) -> RedriveResult:
        for count in (0, 4_999, 5_100, 5_600, 12_000):
            how["report"](count)
        del how["report"]
        self.asked.append((selection, how))
        return self.result if how["limit"] is None else RedriveResult({}, {})

    def run(self, folder: Path, command: str, *more: str) -> Any:
        """`keyfold dlq COMMAND` of the connector in `folder`."""
        this: Any = self
        connector = connector_file(folder, **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"})
        parts = CommandParts(dead_letters=lambda *_: this)
        return invoke("dlq", command, connector, "--worker", worker_file(folder), *more, parts=parts)


@pytest.fixture
def topic() -> Letters:
    return Letters()


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ((), [(0, 1), (0, 2), (1, 1), (1, 2)]),
        (("--topic", "t"), [(0, 1), (1, 1)]),
        (("--stage", "VALUE_CONVERTER"), [(0, 2), (1, 1)]),
        (("--stage", "value_converter"), [(0, 2), (1, 1)]),
        (("--class", "keyfold.Json"), [(0, 2)]),
        (("--offset", "1"), [(0, 1), (1, 1)]),
        (("--partition", "1", "--offset", "1"), [(1, 1)]),
        (("--partition", "2"), []),
        (("--limit", "1"), [(0, 1)]),
    ],
)
def test_show_is_about_the_letters_that_options_name(
    tmp_path: Path, topic: Letters, options: tuple[str, ...], places: list[tuple[int, int]]
) -> None:
    """By what they say of their record, and by where they are."""
    found = json.loads(topic.run(tmp_path, "show", "--json", *options).stdout)
    assert [(one["partition"], one["offset"]) for one in found] == places


def test_show_prints_what_is_wrong_and_what_the_record_holds(tmp_path: Path, topic: Letters) -> None:
    """Bytes that are no text are escaped, and cut short; of a letter without context only the record is shown."""
    shown = topic.run(tmp_path, "show", "--partition", "1").stdout
    first, second = shown.split("\n\n")
    assert first.splitlines()[:3] == [
        "letter 1/1",
        "  record   t-? at offset ?",
        "  stage    VALUE_CONVERTER, keyfold.Avro",
    ]
    assert "  time     1970-01-01T00:00:00Z, of the record" in first.splitlines()
    assert "header   h: null" in first
    assert "(120 bytes)" in second
    assert "stage" not in second
    assert topic.run(tmp_path, "show", "--topic", "x").stdout == "There are no such letters in dead.\n"


@pytest.mark.parametrize("command", ["show", "list"])
def test_what_a_letter_says_moves_nothing_on_the_terminal(tmp_path: Path, topic: Letters, command: str) -> None:
    """A producer of the source may have written all of it: each text is shown in its line."""
    said = dict.fromkeys(("topic", "stage", "class_name", "exception_class_name", "exception_message"), HOSTILE)
    topic.kept = [replace(letter(0, 1, **said), headers=((f"{HOSTILE}\n  value    forged", b"x"),))]
    shown = topic.run(tmp_path, command).stdout
    assert [line for line in shown.splitlines() if not line.isprintable() or line.startswith("  value    forged")] == []
    assert r"\x1b[2J\nletter 9/9" in shown


def test_list_counts_letters_by_what_they_say(tmp_path: Path, topic: Letters) -> None:
    """Those that say nothing are counted too; those that were sent back are not waiting."""
    assert [line.split()[:6] for line in topic.run(tmp_path, "list").stdout.splitlines()[1:]] == [
        ["t", "TASK_PUT", "keyfold.CompactedTopic", "-", "1", "0"],
        ["u", "VALUE_CONVERTER", "keyfold.Json", "-", "1", "1"],
        ["t", "VALUE_CONVERTER", "keyfold.Avro", "-", "1", "1"],
        ["-", "-", "-", "-", "1", "1"],
    ]
    assert [one["waiting"] for one in json.loads(topic.run(tmp_path, "list", "--json").stdout)] == [0, 1, 1, 1]


def test_a_letter_that_was_sent_back_is_shown_as_such(tmp_path: Path, topic: Letters) -> None:
    """It stays in the topic until retention removes it."""
    assert [one["redriven"] for one in json.loads(topic.run(tmp_path, "show", "--json").stdout)] == [
        True,
        False,
        False,
        False,
    ]
    first, second, *_ = topic.run(tmp_path, "show").stdout.split("\n\n")
    assert first.splitlines()[0].endswith(", sent back")
    assert "sent back" not in second


def test_times_of_records_and_of_letters_are_told_apart(tmp_path: Path, topic: Letters) -> None:
    """Each where the letter says it."""
    dated = replace(letter(0, 1, topic="t"), timestamp=1_000, appended=61_000)
    undated = replace(letter(0, 2), timestamp=62_000, appended=62_000, dated=False)
    topic.kept = [dated, undated, replace(dated, timestamp=3_000)]
    shown = topic.run(tmp_path, "show").stdout.split("\n\n")
    assert shown[0].startswith("letter 0/1, 1970-01-01T00:01:01Z, sent back\n")
    assert "  time     1970-01-01T00:00:01Z, of the record" in shown[0]
    assert "time" not in shown[1]
    found = json.loads(topic.run(tmp_path, "show", "--json").stdout)
    assert [(one["timestamp"], one["appended_ms"]) for one in found] == [
        (1_000, 61_000),
        (None, 62_000),
        (3_000, 61_000),
    ]
    counted = json.loads(topic.run(tmp_path, "list", "--json").stdout)
    times = [[one[f"{end}_ms"] for end in ("first", "last", "first_letter", "last_letter")] for one in counted]
    assert times == [[1_000, 3_000, 61_000, 61_000], [None, None, 62_000, 62_000]]
    header, _, last = topic.run(tmp_path, "list").stdout.splitlines()
    assert header.endswith("FIRST RECORD          LAST RECORD           FIRST LETTER          LAST LETTER")
    assert "  -                     -                     1970-01-01T00:01:02Z  1970" in last


@pytest.mark.parametrize("time_ms", [(1 << 63) - 1, 10**17])
def test_a_time_that_no_date_has_is_shown_as_a_number(tmp_path: Path, topic: Letters, time_ms: int) -> None:
    """A record may name any time; one of its letters hides no other."""
    topic.kept = [replace(letter(0, 1, topic="t"), timestamp=time_ms)]
    assert f"  time     {time_ms} ms, of the record" in topic.run(tmp_path, "show").stdout
    assert f"{time_ms} ms" in topic.run(tmp_path, "list").stdout


def test_letters_are_shown_also_where_the_positions_cannot_be_read(tmp_path: Path, topic: Letters) -> None:
    """That is said, and nothing is claimed of them."""
    topic.refusal = ConflictError("Somebody else's.")
    for command, field in (("list", "waiting"), ("show", "redriven")):
        done = topic.run(tmp_path, command, "--json")
        assert {one[field] for one in json.loads(done.stdout)} == {None}
        assert done.stderr == "It cannot be told which letters were sent back: Somebody else's.\n"


@pytest.mark.parametrize(
    ("options", "selection", "how"),
    [
        ((), RedriveSelection(3, once=True), {"dry_run": False, "limit": None}),
        (
            ("--topic", "t", "--stage", "TASK_PUT", "--class", "x.Y", "--max-redrives", "5", "--unnamed"),
            RedriveSelection(5, LetterFilter("t", "TASK_PUT", "x.Y"), unnamed=True, once=True),
            {"dry_run": False, "limit": None},
        ),
        (("--limit", "7", "--dry-run"), RedriveSelection(3, once=True), {"dry_run": True, "limit": 7}),
        (("--every-letter",), RedriveSelection(3), {"dry_run": False, "limit": None}),
    ],
)
def test_redrive_chooses_what_options_name(
    tmp_path: Path, topic: Letters, options: tuple[str, ...], selection: RedriveSelection, how: dict[str, object]
) -> None:
    """Without options: whatever has not come back three times."""
    assert topic.run(tmp_path, "redrive", *options).exit_code == 0
    assert topic.asked == [(selection, how)]


@pytest.mark.parametrize(("options", "verb"), [((), "sent back"), (("--dry-run",), "would be sent back")])
def test_redrive_says_what_it_did_or_would_do(
    tmp_path: Path, topic: Letters, options: tuple[str, ...], verb: str
) -> None:
    """By topic, and why letters were left; a pipe gets no word on the way there."""
    done = topic.run(tmp_path, "redrive", *options)
    assert done.stderr == ""
    assert [line.split(maxsplit=1)[0] for line in done.stdout.splitlines()] == ["SOURCE", "t", "-", "-"]
    assert f" {verb} " in done.stdout
    assert "left: left by the filters" in done.stdout
    assert json.loads(topic.run(tmp_path, "redrive", "--json").stdout)["already"] == FEW.already
    assert topic.run(tmp_path, "redrive", "--limit", "1").stdout == "There are no letters to send back.\n"


@pytest.mark.parametrize("command", ["show", "redrive"])
@pytest.mark.parametrize(("stage", "said"), [("TASK_PUTT", 'did you mean "TASK_PUT"?'), ("x", "KAFKA_PRODUCE")])
def test_a_stage_that_there_is_not_is_a_usage_error(
    tmp_path: Path, topic: Letters, command: str, stage: str, said: str
) -> None:
    """It names the nearest one and all others, and nothing is sent."""
    done = topic.run(tmp_path, command, "--stage", stage)
    assert (done.exit_code, topic.asked) == (2, [])
    assert said in done.stderr
    assert "KEY_CONVERTER, VALUE_CONVERTER" in done.stderr


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("show", ("--topic", "x", "--class", "y"), "strange: x y\n"),
        ("show", ("--topic", "t"), ""),
        ("redrive", ("--topic", "x", "--limit", "1"), "strange: x None\n"),
    ],
)
def test_nothing_found_is_explained_where_a_name_is_strange(
    tmp_path: Path, topic: Letters, command: str, options: tuple[str, ...], expected: str
) -> None:
    """On stderr, as stdout has the result; what is found is not asked about."""
    done = topic.run(tmp_path, command, "--json", *options)
    assert (done.exit_code, done.stderr) == (0, expected)


def test_a_run_that_stopped_at_its_limit_says_so(tmp_path: Path, topic: Letters) -> None:
    """What it left is only counted up to there."""
    assert "so far" not in topic.run(tmp_path, "redrive").stdout
    topic.result = replace(FEW, limited=True)
    assert topic.run(tmp_path, "redrive").stdout.endswith(
        "It stopped at --limit: other letters were counted only so far.\n"
    )


def test_a_topic_that_does_not_exist_is_told_from_an_empty_one(tmp_path: Path, topic: Letters) -> None:
    """In place of the result, or on stderr beside JSON; names are not called wrong then."""
    topic.kept = []
    topic.result = RedriveResult({}, {})
    assert topic.run(tmp_path, "list").stdout == "There are no letters in dead.\n"
    topic.nothing = "No topic."
    for command in ("list", "show", "redrive"):
        assert topic.run(tmp_path, command).stdout == "No topic.\n"
        done = topic.run(tmp_path, command, "--json")
        assert (done.exit_code, done.stderr.splitlines()[-1:]) == (0, ["No topic."])
        assert not any(json.loads(done.stdout) if command != "redrive" else [])


def test_a_connector_without_dead_letters_is_refused(tmp_path: Path) -> None:
    """With the setting that gives it some."""
    done = invoke("dlq", "list", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    assert done.exit_code == 2
    assert "errors.deadletterqueue.topic.name" in done.stderr
    assert dlq.app.info.name == "dlq"

"""`keyfold dlq`: what is in a connector's dead letter topic, and its way back to the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from compactor.errors import KeyfoldError
from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    SomePartitionOption,
    SomeTopicOption,
    WorkerOption,
    configs_of,
    parts_of,
)
from connectors.cli.output import Steps, note, say, say_json
from connectors.counted import counted
from connectors.errors import UsageError
from connectors.progress.terminal import table
from connectors.rejection import Stage
from connectors.terminal_text import one_line, readable

if TYPE_CHECKING:
    from connectors.operations.redrive.counts import LetterCount
    from connectors.operations.redrive.letters import Letter
    from connectors.operations.redrive.run import DeadLetters, LetterFates, RedriveResult

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STEP: Final = 5_000
"""Letters, after which it is said how many were handled."""
_SHOWN: Final = 80
"""Characters of a key or value that are shown."""

StageOption = Annotated[str | None, typer.Option("--stage", help="Only letters of this stage.", metavar="STAGE")]
ClassOption = Annotated[str | None, typer.Option("--class", help="Only letters of this class.", metavar="CLASS")]
LimitOption = Annotated[int | None, typer.Option("--limit", help="At most so many letters.", metavar="N", min=1)]
RedrivesOption = Annotated[
    int, typer.Option("--max-redrives", help="Leave records that came back so often.", metavar="N", min=1)
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")]
UnnamedOption = Annotated[
    bool,
    typer.Option("--unnamed", help="Also letters that do not say of which connector they are: all are this one's."),
]
EveryOption = Annotated[
    bool,
    typer.Option(
        "--every-letter", help="Also letters of a record that another letter has sent back: resync makes one again."
    ),
]
OffsetOption = Annotated[int | None, typer.Option("--offset", help="Only the letter at this offset.", min=0)]

app: Final = typer.Typer(name="dlq", no_args_is_help=True, help="Looks into dead letters, and sends them back.")


@app.command("list")
def list_letters(
    context: typer.Context, connector: ConnectorArgument, as_json: JsonOption = False, worker: WorkerOption = None
) -> None:
    """Counts the dead letters by source topic, stage, class and error, and those of them that were not sent back.

    Examples:
        keyfold dlq list customers.json
    """
    from connectors.operations.redrive.counts import counts

    letters = _letters(context, connector, worker)
    kinds = counts(letters.letters(), _fates(letters))
    nothing = None if kinds else letters.absent()
    if as_json:
        say_json(kinds)
        _warn(filter(None, [nothing]))
    else:
        say(_counts_text(kinds) or nothing or f"There are no letters in {letters.topic}.")


@app.command()
def show(
    context: typer.Context,
    connector: ConnectorArgument,
    topic: SomeTopicOption = None,
    stage: StageOption = None,
    class_name: ClassOption = None,
    partition: SomePartitionOption = None,
    offset: OffsetOption = None,
    limit: LimitOption = 10,
    as_json: JsonOption = False,
    worker: WorkerOption = None,
) -> None:
    """Shows dead letters, the first ones first: what is wrong with each, and what it holds.

    Examples:
        keyfold dlq show customers.json --limit 1
    """
    from connectors.operations.redrive.letters import LetterFilter

    letters = _letters(context, connector, worker)
    wanted = LetterFilter(topic, _stage(stage), class_name)
    chosen = (
        letter for letter in letters.letters(partition) if wanted.matches(letter) and offset in (None, letter.offset)
    )
    shown = list(islice(chosen, limit))
    fates = _fates(letters) if shown else None
    nothing = None if shown else letters.absent()
    gone = [None if fates is None else fates.is_redriven(letter) for letter in shown]
    if as_json:
        say_json([_as_json(*each) for each in zip(shown, gone, strict=True)])
        _warn(filter(None, [nothing]))
    else:
        texts = ("\n".join(_lines(letter, gone=is_gone)) for letter, is_gone in zip(shown, gone, strict=True))
        say("\n\n".join(texts) or nothing or f"There are no such letters in {letters.topic}.")
    if not shown and nothing is None:
        _warn(letters.strange(wanted))


@app.command()
def redrive(
    context: typer.Context,
    connector: ConnectorArgument,
    topic: SomeTopicOption = None,
    stage: StageOption = None,
    class_name: ClassOption = None,
    max_redrives: RedrivesOption = 3,
    unnamed: UnnamedOption = False,
    every_letter: EveryOption = False,
    limit: LimitOption = None,
    dry_run: DryOption = False,
    as_json: JsonOption = False,
    worker: WorkerOption = None,
) -> None:
    """Sends dead letters back to their source topics, as they were, one of each record.

    What is left stays for a later run; a run that is killed is gone on with by the next.

    Examples:
        keyfold dlq redrive customers.json --dry-run
        keyfold dlq redrive customers.json
    """
    from connectors.operations.redrive.letters import LetterFilter
    from connectors.operations.redrive.plan import RedriveSelection

    chosen = LetterFilter(topic, _stage(stage), class_name)
    selection = RedriveSelection(max_redrives, chosen, unnamed, once=not every_letter)
    letters = _letters(context, connector, worker)
    report = Steps(_STEP, lambda count: f"{counted(count, 'letter')} {_verb(dry_run=dry_run)}")
    result = letters.redrive(selection, dry_run=dry_run, limit=limit, report=report)
    nothing = None if result.sent or result.left or result.already else letters.absent()
    if as_json:
        say_json(result)
        _warn(filter(None, [nothing]))
    else:
        say(_result_text(result, dry_run=dry_run) or nothing or "There are no letters to send back.")
    if not result.matched and nothing is None:
        _warn(letters.strange(selection.filter))


def _fates(letters: DeadLetters) -> LetterFates | None:
    """Returns which letters have gone; None, with a sentence on stderr, if that cannot be told: they are shown."""
    try:
        return letters.fates()
    except KeyfoldError as error:
        _warn([f"It cannot be told which letters were sent back: {error.message}"])
        return None


def _stage(given: str | None) -> str | None:
    """Returns the stage that `given` names, in upper or lower case. Raises UsageError if there is none."""
    stages = [stage.value for stage in Stage]
    if given is None or given.upper() in stages:
        return given and given.upper()
    from connectors.config.errors import nearest

    near = nearest(given, stages)
    meant = f'; did you mean "{near}"?' if near else "."
    raise UsageError(f'--stage: there is no stage "{given}"{meant}', f"Give one of {', '.join(stages)}.")


def _warn(sentences: Iterable[str]) -> None:
    """Says on stderr what a result does not."""
    for sentence in sentences:
        note(sentence)


def _letters(context: typer.Context, connector: ConnectorArgument, worker: WorkerOption) -> DeadLetters:
    config, settings = configs_of(connector, worker)
    from connectors.operations.redrive.run import DeadLetters

    return (parts_of(context).dead_letters or DeadLetters)(config, settings)


def _verb(*, dry_run: bool) -> str:
    return "would be sent back" if dry_run else "sent back"


def _counts_text(kinds: Iterable[LetterCount]) -> str:
    rows = [
        (
            kind.topic or "-",
            kind.stage or "-",
            kind.class_name or "-",
            kind.exception.rpartition(".")[2] or "-",
            kind.count,
            kind.waiting,
            *(_time(ms) for ms in (kind.first_ms, kind.last_ms, kind.first_letter_ms, kind.last_letter_ms)),
        )
        for kind in kinds
    ]
    if not rows:
        return ""
    times = ("FIRST RECORD", "LAST RECORD", "FIRST LETTER", "LAST LETTER")
    return table(("TOPIC", "STAGE", "CLASS", "ERROR", "LETTERS", "WAITING", *times), rows)


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    try:
        return f"{_EPOCH + timedelta(milliseconds=ms):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:  # a record may name any time; there are dates from the year 1 to 9999
        return f"{ms} ms"


def _lines(letter: Letter, *, gone: bool | None) -> Iterator[str]:
    said = {name: one_line(text) for name, text in letter.context.items()}
    came = "" if letter.appended is None else f", {_time(letter.appended)}"
    yield f"letter {letter.partition}/{letter.offset}{came}{', sent back' if gone else ''}"
    if said:
        place = "-".join((said.get("topic", "?"), said.get("partition", "?")))
        yield f"  record   {place} at offset {said.get('offset', '?')}"
        yield f"  stage    {said.get('stage', '?')}, {said.get('class.name', '?')}"
        yield f"  error    {said.get('exception.class.name', '?')}: {said.get('exception.message', '')}"
    if letter.record_ms is not None:
        yield f"  time     {_time(letter.record_ms)}, of the record"
    if letter.redrives:
        yield f"  redrives {letter.redrives}"
    yield f"  key      {_short(letter.key)}"
    yield f"  value    {_short(letter.value)}"
    for name, value in letter.headers:
        yield f"  header   {_short(name)}: {_short(value)}"


def _short(data: bytes | str | None) -> str:
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data
    text = one_line(text[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(data):,} bytes)"


def _as_json(letter: Letter, gone: bool | None) -> dict[str, object]:
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "appended_ms": letter.appended,
        "timestamp": letter.record_ms,
        "redrives": letter.redrives,
        "redriven": gone,
        "context": letter.context,
        "key": readable(letter.key),
        "value": readable(letter.value),
        "headers": [{"key": name, "value": readable(value)} for name, value in letter.headers],
    }


def _result_text(result: RedriveResult, *, dry_run: bool) -> str:
    rows = [(topic, _verb(dry_run=dry_run), count) for topic, count in sorted(result.sent.items())]
    rows += [("-", f"left: {why}", count) for why, count in sorted(result.left.items())]
    if result.already:
        rows.append(("-", "sent back before", result.already))
    if not rows:
        return ""
    text = table(("SOURCE TOPIC", "WHAT", "LETTERS"), rows)
    return f"{text}\nIt stopped at --limit: other letters were counted only so far." if result.limited else text

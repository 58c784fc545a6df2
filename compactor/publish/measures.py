"""Measures a publish from the metadata of what was sent: the ages of records, and how many were superseded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compactor.model.publish_plan import PublishResult, PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.runs.scan import FileRange, between


def oldest_sent(
    state: CatalogState, targets: Iterable[PublishTarget], sent: Iterable[PublishResult]
) -> Iterator[tuple[int, int]]:
    """Yields for each result with records the time in ms from which its oldest record ages, and how many it has.

    `state` still has the runs of what was sent.
    """
    logs, starts = state.by_partition(), {target.tp: target.start for target in targets}
    for result in sent:
        if not result.records:
            continue
        runs = between(logs[result.tp], starts[result.tp], result.end).runs
        if runs:
            yield min(run.aged_ms for run in runs), result.records


class SupersededCount:
    """Counts superseded records from the metadata of files, as not every fold knows how many it has read.

    A file's records count with the publish that sends the last of them. So if folds end inside a file
    (min.compaction.lag.ms), more may have been sent than counted: that much is owed until the file is sent to its end.
    A file that an earlier run has sent in part is left out, as it is not known how much of it that was.
    """

    def __init__(self) -> None:
        # By partition, negative: records that were sent and not counted yet, as a fold ended inside their file. Set by
        # one publish, taken by the next.
        self._owed: dict[TopicPartition, int] = {}
        # By partition: the file that the last publish has sent in part, counted as it was then.
        self._begun: dict[TopicPartition, FileRange] = {}

    def add(self, state: CatalogState, targets: Iterable[PublishTarget], sent: Iterable[PublishResult]) -> int:
        """Returns how many records `sent` has left out, as far as it can be told now; never below 0.

        `state` still has the runs of what was sent. Without an output topic nothing is folded.
        """
        logs, asked = state.by_partition(), {target.tp: target for target in targets}
        folds = ((asked[result.tp], result) for result in sent if asked[result.tp].output is not None)
        return sum(
            self._left_out(target, result, between(logs[result.tp], target.start, result.end).file_ranges)
            for target, result in folds
        )

    def _left_out(self, target: PublishTarget, result: PublishResult, ranges: tuple[FileRange, ...]) -> int:
        begun = self._begun.pop(target.tp, None)
        records, owed = 0, self._owed.pop(target.tp, 0)
        for file_range in ranges:
            # A clean may have counted the rest of a file again since: the counts at its beginning are used.
            known = begun if begun is not None and begun.file.path == file_range.file.path else file_range
            if known.file.first < target.start and known is file_range:
                continue
            if file_range.file.last < result.end:
                records += known.file.records
            else:
                self._begun[target.tp] = known
        sent = result.records + result.rejected + result.refused + result.unchanged + result.late
        total = owed + records - sent
        if total < 0 and target.tp in self._begun:
            self._owed[target.tp] = total
        return max(0, total)

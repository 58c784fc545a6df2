"""Answers the page of a connector's dead letters: how many of which class, one of them, and their way back."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from compactor.digits import whole
from compactor.errors import KeyfoldError
from connectors.config.fields import INT_MAX
from connectors.errors import UsageError
from connectors.operations.redrive.letters import LetterFilter
from connectors.rest import errors
from connectors.rest.context import RestContext
from connectors.runtime.supervised_connector import Connector
from connectors.ui.deeds import Deeds
from connectors.ui.forms import own_form
from connectors.ui.letters.choices import MOST_LETTERS, MOST_REDRIVES, STAGES, letter_choice, letter_filter
from connectors.ui.letters.looking import Look
from connectors.ui.letters.reads import LetterReads
from connectors.ui.letters.runs import DRY_RUN, REDRIVE, LetterRun, LetterRuns
from connectors.ui.protection import FormTokens
from connectors.ui.reading import ReadingPages

_log = structlog.get_logger()

_POLL_S: Final = 0.05
_POLLS: Final = 40
"""How often a form looks whether what it has asked for has ended: for 2 s, so that most pages that follow have it."""
_LONG_MAX: Final = (1 << 63) - 1


class LetterPages:
    """Shows dead letters by `reads`, and sends them back by `runs`."""

    def __init__(
        self,
        context: RestContext,
        pages: ReadingPages,
        tokens: FormTokens,
        deeds: Deeds,
        reads: LetterReads,
        runs: LetterRuns,
    ) -> None:
        self._context = context
        self._pages = pages
        self._tokens = tokens
        self._deeds = deeds
        self._reads = reads
        self._runs = runs

    def routes(self) -> list[Route]:
        """Returns their paths."""
        place = "/ui/connectors/{name}/letters"
        return [
            Route(place, self.letters),
            Route(f"{place}/at/{{partition}}/{{offset}}", self.letter),
            Route(f"{place}/dry-run", self.dry_run, methods=["POST"]),
            Route(f"{place}/runs/{{run}}", self.run),
            Route(f"{place}/runs/{{run}}/redrive", self.redrive, methods=["POST"]),
            Route(f"{place}/runs/{{run}}/cancel", self.cancel, methods=["POST"]),
        ]

    async def letters(self, request: Request) -> Response:
        """Shows the newest letters, or why they cannot be read. Raises NoConnectorError."""
        connector = self._named(request)
        look: Look | None = None
        wanted, code, said = LetterFilter(), HTTPStatus.OK, ""
        if connector.spec.config.dead_letter_topic is not None:
            try:
                wanted = letter_filter(request.query_params)
                look = await self._reads.look(connector, wanted)
            except KeyfoldError as error:
                code, said = errors.refusal(request, error)
        values: dict[str, Any] = {"look": look, "said": said, "wanted": wanted, "last": self._runs.of(connector)}
        choices: dict[str, Any] = {"stages": STAGES, "most_letters": MOST_LETTERS, "most_redrives": MOST_REDRIVES}
        return await self._page(request, "letters.html", connector, code, **values, **choices)

    async def letter(self, request: Request) -> Response:
        """Shows the letter at an offset, or why it cannot be read. Raises NoConnectorError, HTTPException 404."""
        connector = self._named(request)
        partition = whole(request.path_params["partition"], INT_MAX)
        offset = whole(request.path_params["offset"], _LONG_MAX)
        if partition is None or offset is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        code, said, letter = HTTPStatus.OK, "", None
        try:
            letter = await self._reads.letter(connector, partition, offset)
        except KeyfoldError as error:
            code, said = errors.refusal(request, error)
        if letter is None and not said:
            code = HTTPStatus.NOT_FOUND
            said = (
                f"There is no letter at offset {offset} of partition {partition}: it was removed by the topic's "
                "retention, is the mark of a transaction, or has not come yet."
            )
        place = {"partition": partition, "offset": offset}
        return await self._page(request, "letter.html", connector, code, letter=letter, said=said, **place)

    async def run(self, request: Request) -> Response:
        """Shows a dry run or a redrive: how far it is, or what came of it. Raises as `letter`."""
        connector = self._named(request)
        run = self._run_of(request, connector)
        end = run.end  # once: it may end meanwhile
        deed, outcome = end or (run.deed, None)
        values: dict[str, Any] = {"run": run, "outcome": outcome, "its_deed": deed}
        return await self._page(request, "letters_run.html", connector, **values)

    async def dry_run(self, request: Request) -> Response:
        """Begins a dry run, and leads to its page. Raises NoConnectorError, UsageError."""
        who, fields = await own_form(request, self._tokens)
        connector = self._named(request)
        choice = letter_choice(fields)
        deed = self._deeds.begin(connector.name, DRY_RUN, who.user, self._context.clock.now_ms())
        try:
            with self._deeds.ended_if_broken_off(deed, self._context.clock):
                run = self._runs.begin_dry(connector, choice, deed)
        except KeyfoldError as error:
            return self._refused(request, connector, deed.id, error)
        return await self._begun(connector, run)

    async def redrive(self, request: Request) -> Response:
        """Begins to send back what a dry run has chosen. Raises as `letter`; UsageError if it was not confirmed."""
        who, fields = await own_form(request, self._tokens)
        connector = self._named(request)
        dry_run = self._run_of(request, connector)
        if fields.get("confirm") != "yes":
            raise UsageError("It was not confirmed; nothing was done.", "Go back, and confirm it.")
        deed = self._deeds.begin(connector.name, REDRIVE, who.user, self._context.clock.now_ms())
        _log.info("asked for on the page", connector=connector.name, deed="redrive", user=who.user)
        try:
            with self._deeds.ended_if_broken_off(deed, self._context.clock):
                run = self._runs.begin(connector, dry_run, deed)
        except KeyfoldError as error:
            return self._refused(request, connector, deed.id, error)
        return await self._begun(connector, run)

    async def cancel(self, request: Request) -> Response:
        """Has a run end early, and leads to its page. Raises as `letter`."""
        await own_form(request, self._tokens)
        connector = self._named(request)
        run = self._run_of(request, connector)
        run.cancelled.set()
        return await self._begun(connector, run)

    def _named(self, request: Request) -> Connector:
        """Returns the connector that the path names. Raises NoConnectorError."""
        return self._context.herder.connector(request.path_params["name"])

    def _run_of(self, request: Request, connector: Connector) -> LetterRun:
        run = self._runs.named(connector, request.path_params["run"])
        if run is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return run

    async def _begun(self, connector: Connector, run: LetterRun) -> Response:
        """Leads to the page of a run, which it gives a moment to end."""
        for _ in range(_POLLS):
            if run.outcome is not None:
                break
            await asyncio.sleep(_POLL_S)
        return RedirectResponse(f"{_place(connector)}/runs/{run.deed.id}", HTTPStatus.SEE_OTHER)

    def _refused(self, request: Request, connector: Connector, deed_id: str, error: KeyfoldError) -> Response:
        deed = self._deeds.named(deed_id)
        if deed is not None:
            self._deeds.end(deed, errors.refusal(request, error)[1], self._context.clock.now_ms(), ok=False)
        return RedirectResponse(f"{_place(connector)}?{urlencode({'deed': deed_id})}", HTTPStatus.SEE_OTHER)

    async def _page(
        self, request: Request, template: str, connector: Connector, code: int = HTTPStatus.OK, **values: Any
    ) -> Response:
        frame = {"name": connector.name, "tab": "letters", "topic": connector.spec.config.dead_letter_topic}
        return await run_in_threadpool(self._pages.page, request, template, code, **frame, **values)


def _place(connector: Connector) -> str:
    return f"/ui/connectors/{quote(connector.name, safe='')}/letters"

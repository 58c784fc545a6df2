"""Answers the look-up of a key: the latest record that a connector keeps of it, as `keyfold get` and REST say it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from compactor.errors import KeyfoldError
from connectors.rest import errors
from connectors.rest.answers import share_of
from connectors.rest.context import RestContext
from connectors.rest.endpoints.records import get_records
from connectors.ui.reading import ReadingPages


class LookUpPages:
    """Shows the form, and what was found; a look-up takes a place among those of REST."""

    def __init__(self, context: RestContext, pages: ReadingPages) -> None:
        self._context = context
        self._pages = pages

    def routes(self) -> list[Route]:
        """Returns their paths."""
        return [Route("/ui/connectors/{name}/lookup", self.look_up)]

    async def look_up(self, request: Request) -> Response:
        """Shows the record of the key in the query, or why there is none. Raises NoConnectorError."""
        name, key = request.path_params["name"], request.query_params.get("key", "")
        self._context.herder.connector(name)
        records: list[dict[str, Any]] | None = None
        code, said = HTTPStatus.OK, ""
        if key:
            try:
                answer = await get_records(self._context, share_of(request.scope), name, keys=[key], is_text="true")
                records = msgspec.json.decode(answer.body)["records"]
            except KeyfoldError as error:
                code, said = errors.refusal(request, error)
        values = {"name": name, "tab": "lookup", "key": key, "records": records, "said": said}
        return await run_in_threadpool(self._pages.page, request, "lookup.html", code, **values)

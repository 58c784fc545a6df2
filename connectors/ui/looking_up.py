"""Answers the look-up of a key: the latest record that a connector keeps of it, as `keyfold get` and REST say it."""

from __future__ import annotations

import base64
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from compactor.errors import KeyfoldError
from connectors.errors import UsageError
from connectors.rest import errors
from connectors.rest.answers import share_of
from connectors.rest.context import RestContext
from connectors.rest.endpoints.records import get_records
from connectors.ui.reading import ReadingPages

FORMS: Final = {
    "text": "text: its bytes in UTF-8, whole",
    "value": 'its value, such as {"id": 7}, if a converter of JSON, Avro or Protobuf wrote it',
    "base64": "bytes in base64",
    "hex": "bytes in hexadecimal digits",
}
"""In which forms a key is given, with what each is."""


def asked(key: str, form: str) -> dict[str, Any]:
    """Returns what REST is asked for a key in one of FORMS; in another one it is text. Raises UsageError."""
    if form == "value":
        return {"keys": [key], "is_typed": "true"}
    if form == "hex":
        return {"keys": [key.strip()], "is_hex": "true"}
    if form == "base64":
        try:
            return {"keys": [base64.b64decode(key.strip(), validate=True).hex()], "is_hex": "true"}
        except ValueError:  # also of other characters than ASCII has
            raise UsageError("The key is not base64.", "For example AP8=, which are two bytes.") from None
    return {"keys": [key]}


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
        form = request.query_params.get("form", "text")
        self._context.herder.connector(name)
        records: list[dict[str, Any]] | None = None
        code, said = HTTPStatus.OK, ""
        if key:
            try:
                share, wanted = share_of(request.scope), asked(key, form)
                answer = await get_records(self._context, share, name, is_text="true", **wanted)
                records = msgspec.json.decode(answer.body)["records"]
            except KeyfoldError as error:
                code, said = errors.refusal(request, error)
        values = {
            "name": name,
            "tab": "lookup",
            "key": key,
            "form": form,
            "forms": FORMS,
            "records": records,
            "said": said,
        }
        return await run_in_threadpool(self._pages.page, request, "lookup.html", code, **values)

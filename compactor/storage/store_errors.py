"""Says what an object store answers in an error: its status and its code, and no text of its own.

A store may repeat what it was sent, and not all of that is known here: obstore fetches tokens and signs requests.
So may what stands between, a proxy or a server of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qs

from compactor.secret_forms import forms_of, without

_SECRET: Final = re.compile(r"(?i)(?:key|secret|token|sas)(?!.*_file$)")
"""Names of what is sent or signed with, among obstore's options and the variables of `_CLOUDS`."""
_CLOUDS: Final = ("AWS_", "AZURE_", "GOOGLE_", "GCS_")
"""How the variables of the environment begin that obstore reads."""
_SAID: Final = 1_000
"""Characters that are shown of an error: what was asked and the codes stand in the first hundreds."""
_PANICS: Final = ("PanicException", "RustPanic")
"""The classes of panics by their names, in a call and in what is awaited: each library made with pyo3 has its own, of
which the first derives from BaseException alone."""
_DEBUG: Final = "\n\nDebug source:"
"""How the text begins that obstore writes after a message: it repeats that."""
_STATUS: Final = re.compile(r"status code: \d{3}(?: [A-Z][A-Za-z' -]*)?|error response|DeleteObjects request failed")
"""What obstore writes before the body of an answer."""
_CODE: Final = re.compile(
    r"<Code>([A-Za-z]{1,64})</Code>|\"(?:code|reason|error)\"\s*:\s*\"([A-Za-z_]{1,64})\"|\(code: ([A-Za-z]{1,64})\)"
)
"""A code as S3 and Azure, Google and servers of tokens, and obstore write it."""
_REPEATED: Final = re.compile(r" for url \([^)]*\)|(?<!\w)(?P<quote>['\"`]).*(?P=quote)", re.DOTALL)
"""Where a message repeats a part of an answer: the place of a redirection, and all that obstore quotes, such as a
header, a path or an element of XML that is not as it has to be."""


class StorePanicError(ValueError):
    """The store's client has met what it did not foresee, such as an answer of another form."""

    def __init__(self) -> None:
        super().__init__("the store's client has failed, as it may at an answer that is no store's")


class StoreCredentials:
    """The credentials among `options`, obstore's names and values, and in `environ`, which obstore reads too.

    An error of obstore's own may have them, such as one of an option that it does not take.
    """

    def __init__(self, options: Iterable[tuple[str, str]], environ: Mapping[str, str]) -> None:
        of_clouds = {name: value for name, value in environ.items() if name.startswith(_CLOUDS)}
        given = (*options, *of_clouds.items())
        secrets = [value for name, value in given if _SECRET.search(name)]
        signatures = [sig for value in secrets for sig in parse_qs(value.removeprefix("?")).get("sig", ())]  # Azure's
        self._forms = forms_of(*secrets, *signatures)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hides them, and bodies of answers, in the errors that the block raises: a traceback shows these, too.

        A panic of obstore's Rust, which is no error of obstore's, is raised as a StorePanicError.
        """
        try:
            yield
        except BaseException as error:
            if type(error).__name__ in _PANICS:
                raise StorePanicError from None  # its words may be any part of an answer
            error.args = tuple(self._shown(arg) if isinstance(arg, str) else arg for arg in error.args)
            raise

    def _shown(self, text: str) -> str:
        return without(_REPEATED.sub("", _without_body(text.partition(_DEBUG)[0])), self._forms)


def _without_body(text: str) -> str:
    """Returns what obstore says without the body of the answer; the code in it stays."""
    status = _STATUS.search(text)
    if status is None:
        return text
    code = _CODE.search(text, status.end())
    return text[: status.end()].rstrip() + (f": {next(filter(None, code.groups()))}" if code else "")


def brief(error: BaseException) -> str:
    """Returns the first line of what obstore says, without the debug text after it."""
    return (str(error).partition("\n")[0].strip()[:_SAID] or type(error).__name__).rstrip(".")

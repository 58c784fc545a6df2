"""Says what an object store answers in an error, short and without the credentials: it may repeat what it was sent."""

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
"""Characters that are shown of what a store says: what was asked and the codes stand in the first hundreds."""


class StoreCredentials:
    """The credentials among `options`, obstore's names and values, and in `environ`, which obstore reads too."""

    def __init__(self, options: Iterable[tuple[str, str]], environ: Mapping[str, str]) -> None:
        of_clouds = {name: value for name, value in environ.items() if name.startswith(_CLOUDS)}
        given = (*options, *of_clouds.items())
        secrets = [value for name, value in given if _SECRET.search(name)]
        signatures = [signature for value in secrets for signature in parse_qs(value).get("sig", ())]  # Azure's
        self._forms = forms_of(*secrets, *signatures)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hides them in the errors that the block raises: a traceback shows what these say, too."""
        try:
            yield
        except Exception as error:
            error.args = tuple(without(arg, self._forms) if isinstance(arg, str) else arg for arg in error.args)
            raise


def brief(error: BaseException) -> str:
    """Returns the first line of what obstore says, without the debug text after it."""
    return (str(error).partition("\n")[0].strip()[:_SAID] or type(error).__name__).rstrip(".")

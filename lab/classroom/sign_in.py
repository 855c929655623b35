"""How users sign in to JupyterHub: with the fixed password of their handout."""

from __future__ import annotations

import hmac
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from jupyterhub.auth import Authenticator
from tornado.web import HTTPError
from traitlets import Dict

MOST_FAILED: Final = 10
"""Failed attempts for a user from one network address in a minute; more are refused."""

_WINDOW_S: Final = 60.0
_MOST_BYTES: Final = 72


class SeatAuthenticator(Authenticator):  # type: ignore[misc]
    """Compares passwords with those of the class."""

    tokens = Dict(help="The password of each user.").tag(config=True)

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  (traitlets' own)
        super().__init__(**options)
        self._window = 0.0
        self._failed: Counter[tuple[str, str]] = Counter()

    async def authenticate(self, handler: Any, data: Mapping[str, str]) -> str | None:  # noqa: ANN401
        """Return the user's name, or None for a wrong name or password.

        Raises:
            HTTPError: The page of another host sends the form, the password is too long for any
                user, or too many attempts have failed.
        """
        request = handler.request
        origin = request.headers.get("Origin")
        # A page of a seat could sign its visitor in as its own student.
        if origin and urlsplit(origin).netloc != request.host:
            raise HTTPError(403, "sign in on the page of the class itself")
        user, password = data.get("username", ""), data.get("password", "").encode()
        if len(password) > _MOST_BYTES:
            raise HTTPError(400, f"a password has at most {_MOST_BYTES} bytes")
        token = self.tokens.get(user)
        if token is None:
            return None
        # By address, too: a student cannot lock out another one who sits elsewhere.
        failed, attempt = self._recent(), (user, request.remote_ip)
        if failed[attempt] >= MOST_FAILED:
            raise HTTPError(429, "too many failed attempts: wait a minute, then sign in again")
        if hmac.compare_digest(password, token.encode()):
            return user
        failed[attempt] += 1
        return None

    def _recent(self) -> Counter[tuple[str, str]]:
        """Return the failed attempts of this minute."""
        now = time.monotonic()
        if now - self._window > _WINDOW_S:
            self._window = now
            self._failed.clear()
        return self._failed

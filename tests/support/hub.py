"""What JupyterHub needs of a class besides its settings, without an engine: seats and a proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from lab.teach.classroom.hub import SeatSpawner

ROUTES = "/api/routes"


class PageSpawner(SeatSpawner):
    """A seat without a container: a server in JupyterHub's process, with the seat's settings."""

    _page: HTTPServer | None = None

    async def start(self) -> tuple[str, int]:
        """Serve "not found" for each page, which is an answer for JupyterHub."""
        sockets = bind_sockets(0, "127.0.0.1")
        self._page = HTTPServer(Application())
        self._page.add_sockets(sockets)
        return "127.0.0.1", sockets[0].getsockname()[1]

    async def poll(self) -> int | None:
        return 0 if self._page is None else None

    async def stop(self, now: bool = False) -> None:
        if self._page is not None:
            self._page.stop()
        self._page = None


@contextmanager
def proxy_api(address: str, port: int, token: str) -> Iterator[dict[str, Any]]:
    """The API of a proxy that sends no request anywhere; yields its routes."""
    routes: dict[str, dict[str, Any]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, json.dumps(routes).encode())

        def do_POST(self) -> None:
            route = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            routes[self._path()] = route
            self._answer(201)

        def do_DELETE(self) -> None:
            routes.pop(self._path(), None)
            self._answer(204)

        def _path(self) -> str:
            return unquote(self.path.removeprefix(ROUTES))

        def _answer(self, code: int, content: bytes = b"") -> None:
            self.send_response(code if self.headers["Authorization"] == f"token {token}" else 403)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer((address, port), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield routes
        finally:
            server.shutdown()
            thread.join()

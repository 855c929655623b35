"""An extension of the Jupyter server of a seat: the time left of the class, for its top bar.

`GET lab-class/time` answers `{"left_s": 1800.0}`, or null: the class has no end. The extension of
JupyterLab in `labextension/` asks this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError, authenticated

from lab.classroom.class_time import IN_SEAT, left_s, read_end
from lab.errors import LabError

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


class TimeHandler(APIHandler):
    """Answers the seconds left."""

    _track_activity = False  # the student does nothing

    @authenticated
    def get(self) -> None:
        """Answer."""
        try:
            end = read_end(IN_SEAT)
        except LabError as error:
            raise HTTPError(503, error.what) from error
        self.set_header("Cache-Control", "no-store")
        self.finish({"left_s": left_s(end)})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return where the extension is, for the Jupyter server."""
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: ServerApp) -> None:
    """Add the address to a Jupyter server."""
    address = url_path_join(server.base_url, "lab-class", "time")
    server.web_app.add_handlers(".*$", [(address, TimeHandler)])  # type: ignore[no-untyped-call]

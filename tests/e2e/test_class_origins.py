"""What a page of a hostile seat can do in a browser that is signed in: nothing to any other origin.

docs/evidence/seats.md lists the attempts, the cookies and the headers.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from lab.cluster.config import parse_cluster
from lab.cluster.gpu import Inventory
from lab.teach.classroom import names
from lab.teach.classroom.class_dir import ClassDir, StoredClass
from lab.teach.classroom.config import TEACHER, parse_class
from lab.teach.classroom.hub_api import hub_api
from lab.teach.classroom.planning import HostFacts, plan_class
from lab.teach.classroom.up_down import down, up
from tests.support import engine as engines
from tests.support.agents import ROOT, wait_for
from tests.support.browser import page_of, signed_in
from tests.support.chromium import Tab, a_browser
from tests.support.classes import CERTIFICATE, CLUSTER, KEY
from tests.support.commands import free_port
from tests.support.conditions import lacking
from tests.support.docker import docker

pytestmark = pytest.mark.engine

CONFIG: Final = """\
import os, sys
os.execv(sys.executable, [sys.executable, os.path.expanduser("~/server.py")])
"""
"""`~/.jupyter/jupyter_server_config.py`: the server of the seat executes it when it starts."""

SERVER: Final = """\
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with open(os.path.expanduser("~/page.html"), "rb") as file:
            content = file.read()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

ThreadingHTTPServer(("", 8888), Handler).serve_forever()
"""

PAGE: Final = """\
<!doctype html>
<script>
const {hub, victim, user, password} = Object.fromEntries(new URLSearchParams(location.search));
const pages = {
  home: hub + '/hub/home', token: hub + '/hub/token', admin: hub + '/hub/admin',
  users: hub + '/hub/api/users', me: hub + '/hub/api/user',
  lab: victim + 'lab', file: victim + 'api/contents/secret.txt',
};
const results = {};

async function attempt(name, action) {
  const late = new Promise((_, refuse) => setTimeout(() => refuse('no answer'), 10000));
  try { results[name] = String(await Promise.race([action(), late])); }
  catch (error) { results[name] = 'refused: ' + error; }
}

const content = win => win.document.documentElement.outerHTML;

function asked(method, url, headers, body) {
  return new Promise((resolve, refuse) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    request.withCredentials = true;
    for (const name in headers) request.setRequestHeader(name, headers[name]);
    request.onload = () => resolve(request.status + ' ' + request.responseText);
    request.onerror = () => refuse('error');
    request.send(body);
  });
}

function framed(url) {
  return new Promise(resolve => {
    const frame = document.createElement('iframe');
    frame.onload = () => resolve(frame.contentWindow);
    frame.src = url;
    document.body.append(frame);
  }).then(content);
}

// A window of another origin says nothing about its state, so that there is a time limit.
async function opened(url) {
  const win = window.open(url);
  const until = Date.now() + 6000;
  try {
    while (Date.now() < until) {
      await new Promise(done => setTimeout(done, 100));
      if (win.location.href !== 'about:blank' && win.document.readyState === 'complete') break;
    }
    win.postMessage('who are you?', '*');
    return win.closed ? 'closed' : content(win);
  } finally { win.close(); }
}

async function posted(url, fields, enctype) {
  const form = document.createElement('form');
  Object.assign(form, {method: 'POST', action: url, target: 'answer', enctype});
  for (const name in fields) {
    const field = document.createElement('input');
    Object.assign(field, {name, value: fields[name]});
    form.append(field);
  }
  document.body.append(form);
  const win = window.open('about:blank', 'answer');
  form.submit();
  await new Promise(done => setTimeout(done, 3000));
  try { return content(win); } finally { win.close(); }
}

function connected(url) {
  return new Promise((resolve, refuse) => {
    const socket = new WebSocket(url.replace('http', 'ws'));
    socket.onopen = () => { socket.close(); resolve('connected'); };
    socket.onerror = () => refuse('error');
  });
}

async function attack() {
  for (const name in pages) {
    const url = pages[name];
    await Promise.all([
      attempt('fetch ' + name, async () =>
        (await fetch(url, {credentials: 'include'})).text()),
      attempt('fetch without CORS ' + name, async () =>
        (await fetch(url, {credentials: 'include', mode: 'no-cors'})).text()),
      attempt('XHR ' + name, () => asked('GET', url, {})),
      attempt('frame ' + name, () => framed(url)),
      attempt('window ' + name, () => opened(url)),
    ]);
  }
  const known = Object.values(results).join().match(/xsrf_token: "([^"]+)"/);
  const xsrf = known ? known[1] : document.cookie.replace(/.*_xsrf=/, '');
  const json = {'X-XSRFToken': xsrf, 'Content-Type': 'application/json'};
  const note = JSON.stringify({note: 'hostile'});
  const tokens = hub + '/hub/api/users/' + user + '/tokens';
  const server = hub + '/hub/api/users/seat-01/server';
  await attempt('make a token', () => asked('POST', tokens, json, note));
  await attempt('make a token by a form', () =>
    posted(tokens + '?_xsrf=' + xsrf, {'{"note":"hostile","x":"': '"}'}, 'text/plain'));
  await attempt('make a token without CORS', async () =>
    (await fetch(tokens + '?_xsrf=' + xsrf,
      {method: 'POST', body: note, credentials: 'include', mode: 'no-cors'})).text());
  await attempt('make a file', () => asked('POST', victim + 'api/contents', json, '{}'));
  await attempt('make a file by a form', () =>
    posted(victim + 'api/contents?_xsrf=' + xsrf, {'{"ext":".txt","x":"': '"}'}, 'text/plain'));
  await attempt('socket', () => connected(victim + 'api/events/subscribe'));
  await attempt('stop the seat', () => asked('DELETE', server, json));
  await attempt('JupyterHub at the own address', async () =>
    (await fetch('/hub/login')).status);
  const domain = '; Path=/; Domain=' + location.hostname.replace('seat-02.', '');
  for (const name of ['__Host-jupyterhub-hub-login', 'jupyterhub-hub-login', '_xsrf',
                      'jupyterhub-session-id', '__Host-jupyterhub-user-seat-01'])
    document.cookie = name + '=planted' + domain + '; Secure';
  await attempt('sign in as another student', () =>
    posted(hub + '/hub/login', {username: 'seat-02', password, _xsrf: xsrf}, ''));
  return results;
}
const done = new Promise(resolve => onload = () => resolve(attack()));
</script>
"""


CLASS = """\
version: 1
name: {name}
seats: 2
network: 10.87.{part}.0/24
address: 127.0.0.1:{port}
domain: lab.example.org
tls: {{certificate: {folder}/certificate.pem, key: {folder}/key.pem}}
"""
OWN_TEXT = "what only seat-01 reads"
VICTIM, HOSTILE = "seat-01", "seat-02"


@contextmanager
def a_class(image: str, folder: Path, *, domain: bool) -> Iterator[ClassDir]:
    """A class of two seats; the second one's student serves a page of their own."""
    name, part = ("origins", 0) if domain else ("one-origin", 1)
    (folder / "certificate.pem").write_text(CERTIFICATE)
    (folder / "key.pem").write_text(KEY)
    (folder / "key.pem").chmod(0o600)
    config = parse_class(
        CLASS.format(name=name, part=part, port=free_port(), folder=folder).encode(), "class.yaml"
    )
    host = HostFacts(Inventory("none", (), None, None))
    plan = plan_class(config, host, parse_cluster(CLUSTER.encode(), "cluster"))
    room = ClassDir(plan.name)
    up(StoredClass(plan if domain else replace(plan, domain=""), image, CLUSTER))
    try:
        write(room, VICTIM, {"secret.txt": OWN_TEXT})
        files = {".jupyter/jupyter_server_config.py": CONFIG, "server.py": SERVER}
        write(room, HOSTILE, files | {"page.html": PAGE})
        student = signed_in(room, HOSTILE)
        assert student.ask("DELETE", f"/hub/api/users/{HOSTILE}/server") in {202, 204}
        wait_for(lambda: not servers(room)[HOSTILE], "the seat has stopped", 60)
        assert student.ask("POST", f"/hub/api/users/{HOSTILE}/server") in {201, 202}
        wait_for(lambda: servers(room)[HOSTILE].get("ready"), "the seat is ready", 60)
        yield room
    finally:
        down(room, folder / "work.zip")


def write(room: ClassDir, seat: str, files: dict[str, str]) -> None:
    program = """
import json, pathlib, sys
for name, text in json.loads(sys.argv[1]).items():
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    pathlib.Path(name).write_text(text)
"""
    container = names.seat_object(room.name, seat)
    docker("exec", "-w", names.MOUNT, container, "python", "-c", program, json.dumps(files))


def servers(room: ClassDir) -> dict[str, Mapping[str, Any]]:
    return hub_api(room.stored().plan, room.tokens().service).servers()


def notes(room: ClassDir) -> set[str]:
    with closing(sqlite3.connect(f"file:{room.path}/hub.sqlite?mode=ro", uri=True)) as database:
        return {str(note) for (note,) in database.execute("select note from api_tokens")}


def files_of_the_victim(room: ClassDir) -> str:
    return docker("exec", names.seat_object(room.name, VICTIM), "ls", "-a", names.MOUNT)


@contextmanager
def a_tab(room: ClassDir, user: str) -> Iterator[Tab]:
    plan = room.stored().plan
    try:
        with a_browser("*lab.example.org") as tab:
            tab.sign_in(plan.url, user, room.tokens().seats[user])
            yield tab
    except engines.NoEngine as reason:
        lacking(str(reason))


def attacked(room: ClassDir, tab: Tab, user: str) -> dict[str, str]:
    """What the page of the hostile seat reports after a user has opened it."""
    plan = room.stored().plan
    query = {
        "hub": plan.url,
        "victim": page_of(plan, VICTIM, ""),
        "user": user,
        "password": room.tokens().seats[HOSTILE],
    }
    tab.open(f"{page_of(plan, HOSTILE, 'page')}?{urlencode(query)}")
    return tab.run("done")


@pytest.fixture(scope="module")
def room(class_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClassDir]:
    """A class whose seats have names."""
    with a_class(class_image, tmp_path_factory.mktemp("origins"), domain=True) as found:
        yield found


@pytest.mark.parametrize("user", [VICTIM, TEACHER])
def test_a_page_of_a_seat_reads_and_changes_nothing_elsewhere(room: ClassDir, user: str) -> None:
    before, there = servers(room), files_of_the_victim(room)
    with a_tab(room, user) as tab:
        found = attacked(room, tab, user)
        assert found.pop("JupyterHub at the own address") == "404"
        # An answer without CORS is opaque: its text is empty.
        read = {name: text for name, text in found.items() if not text.startswith("refused: ")}
        assert {name: text for name, text in read.items() if text} == {}
        assert {name for name in read if "without CORS" not in name} == set()
        assert len(found) == 43
        tab.open(f"{room.stored().plan.url}/hub/home")
        assert tab.run("jhdata.user") == user
    assert servers(room) == before
    assert files_of_the_victim(room) == there
    assert "hostile" not in notes(room)


def test_without_names_the_page_acts_as_the_student_who_opens_it(
    class_image: str, tmp_path: Path
) -> None:
    """So the test above can fail. There is no teacher in such a class."""
    with a_class(class_image, tmp_path, domain=False) as room, a_tab(room, VICTIM) as tab:
        found = attacked(room, tab, VICTIM)
        assert OWN_TEXT in found["window file"]
        assert "xsrf_token" in found["window home"]
        assert found["socket"] == "connected"
        assert found["stop the seat"].startswith("20")
        assert found["make a token"].startswith("403"), "no student makes tokens"
        assert set(room.tokens().seats) == {VICTIM, HOSTILE}


# ---- What the browser gets, as docs/evidence/seats.md shows it


def rows_of_the_page(heading: str) -> list[str]:
    _, _, below = (ROOT / "docs/evidence/seats.md").read_text("utf-8").partition(heading + "\n")
    return below.partition("\n\n")[0].splitlines()[1:]


def test_the_cookies_of_the_page(room: ClassDir) -> None:
    plan = room.stored().plan
    hosts = {
        plan.domain: "JupyterHub",
        f".{plan.domain}": "JupyterHub and all seats",
        f"{VICTIM}.{plan.domain}": "the seat",
    }
    with a_tab(room, VICTIM) as tab:
        tab.open(page_of(plan, VICTIM, "lab"))
        found = {
            f"| `{each['name']}` | {hosts[each['domain']]} | `{each['path']}` "
            f"| {yes(each['httpOnly'])} | {yes(each['secure'])} | {each.get('sameSite', 'none')} |"
            for each in tab.cookies()
        }
    heading = "| cookie | sent to | path | HttpOnly | Secure | SameSite |"
    assert sorted(rows_of_the_page(heading)) == sorted(found)


def yes(value: bool) -> str:
    return "yes" if value else "no"


HEADERS = (
    *("Content-Security-Policy", "X-Frame-Options", "Referrer-Policy"),
    *("Access-Control-Allow-Origin", "Cross-Origin-Opener-Policy"),
)


def test_the_headers_of_the_page(room: ClassDir) -> None:
    plan = room.stored().plan
    student, teacher = signed_in(room, VICTIM), signed_in(room, TEACHER)
    pages = {
        "JupyterHub's pages": (student, f"{plan.url}/hub/home"),
        "the admin page": (teacher, f"{plan.url}/hub/admin"),
        "JupyterHub's API": (student, f"{plan.url}/hub/api/"),
        "a seat's page": (student, page_of(plan, VICTIM, "lab")),
        "a seat's API": (student, page_of(plan, VICTIM, "api/contents")),
    }
    found = []
    for name, (browser, url) in pages.items():
        answer = browser.client.get(url)
        values = [answer.headers.get(each, "") for each in HEADERS]
        cells = [f"`{each}`" if each else "not sent" for each in values]
        found.append(f"| {name} | {' | '.join(cells)} |")
    assert rows_of_the_page(f"| page | {' | '.join(HEADERS)} |") == found

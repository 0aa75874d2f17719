"""The explorer's server: pages over a runs root, on this machine alone.

``python -m workbench_apps.explorer ROOT --port N`` starts it too.
"""

from __future__ import annotations

import argparse
import functools
import html
import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import RequestHandler
from workbench_apps.catalogue import DOCS, NEEDS, PARTS

from workbench.errors import WorkbenchError

logger = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost", "[::1]")


class OtherHost(Matcher):
    """Matches requests whose Host header names anything but this machine.

    A page elsewhere may make a browser call its own name at 127.0.0.1 (DNS rebinding); such a
    request is same-origin, so only its Host gives it away.
    """

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        name = request.headers.get("Host", "").lower()
        host = name if name.endswith("]") else name.rpartition(":")[0] or name
        return None if host in HOSTS else {}


class Refusal(RequestHandler):
    """Answers 403 to every method, and to WebSocket upgrades."""

    def prepare(self) -> None:
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"This explorer answers to {' and '.join(HOSTS[:2])} alone.\n")


class Missing(RequestHandler):
    """Answers an address that is none with the pages that there are."""

    def prepare(self) -> None:
        from workbench_apps.keys import PAGES

        links = "".join(f"<li><a href='{path}'>{words}</a></li>" for path, words in PAGES)
        self.set_status(404)
        self.finish(
            "<!DOCTYPE html><html lang='en'><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width'><title>No such page · Workbench"
            "</title><style>:root { color-scheme: light dark } body { font: 16px/1.5 sans-serif; "
            "max-width: 40em; margin: 2em auto; padding: 0 1em }</style><h1>No such page</h1>"
            f"<p>The explorer has nothing at <code>{html.escape(self.request.path)}</code>. "
            f"Back to the <a href='/'>overview</a>, or:</p><ul>{links}</ul></html>"
        )


class Docs(RequestHandler):
    """Shows a page of the docs as the text that it is."""

    def get(self, name: str) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish((DOCS / name).read_text(encoding="utf-8"))


def serve(
    root: Path,
    port: int = 5006,
    open_browser: bool = False,
    announce: Callable[[str], None] | None = None,
    session_seconds: float = 30,
) -> None:
    """Serve the pages on 127.0.0.1 until Ctrl-C.

    Args:
        root: the folder with the runs; it may be empty or absent, and the pages then say what to
            run.
        port: 0 takes a free one.
        open_browser: open a window once the server listens.
        announce: called with the address once the server listens.
        session_seconds: how long the session of a closed page is kept for its return.

    Raises:
        ConfigError: ``root`` is a file.
        WorkbenchError: the port is taken.
    """
    from workbench_apps.catalogue import read_catalogue

    read_catalogue(root)
    server = make_server(root, port, session_seconds)
    url = f"http://{ADDRESS}:{server.port}/"
    if announce is not None:
        server.io_loop.add_callback(announce, url)
    if open_browser:
        server.io_loop.add_callback(server.show, "/")
    server.start()
    try:
        server.io_loop.start()
    finally:
        server.stop()


def make_server(root: Path, port: int = 0, session_seconds: float = 30) -> Any:
    """Return the Panel server, not yet started.

    Args:
        root: the folder with the runs.
        port: 0 takes a free one.
        session_seconds: how long the session of a closed page is kept for its return.

    Raises:
        WorkbenchError: the port is taken.
    """
    import panel as pn
    from workbench_apps.pages import BUILDERS

    _require_free(port)
    pn.extension("tabulator", notifications=True)
    pn.state.on_session_destroyed(lambda context: logger.info("session %s ended", context.id))
    pages = {path: _page(build, root) for path, build in BUILDERS.items()}
    server = pn.io.server.get_server(
        pages,
        port=port,
        address=ADDRESS,
        title=dict.fromkeys(pages, "Workbench"),
        session_token_expiration=3600,
        unused_session_lifetime_milliseconds=int(session_seconds * 1000),
        check_unused_sessions_milliseconds=int(session_seconds * 300),
    )
    application = server._tornado
    application.websocket_origins.update(f"{host}:{server.port}" for host in HOSTS)
    application.settings["default_handler_class"] = Missing
    named = {need.docs for need in (NEEDS | PARTS).values()}
    if shown := [re.escape(name) for name in sorted(named) if (DOCS / name).exists()]:
        application.add_handlers(".*", [(f"/docs/({'|'.join(shown)})", Docs)])
    application.default_router.rules.insert(0, Rule(OtherHost(), Refusal))
    return server


def _page(build: Callable[[Path], Any], root: Path) -> Callable[[], Any]:
    """Panel wants plain functions without arguments."""

    def page() -> Any:
        from workbench_apps.shell import prepare_document

        prepare_document()
        return build(root)

    return functools.wraps(build)(page)


def _require_free(port: int) -> None:
    """Fail before Panel does, and with words."""
    if port == 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            raise WorkbenchError(
                f"port {port} of {ADDRESS} is taken, perhaps by another explorer; close it or "
                "give --port 0 to take a free one"
            ) from None


def main() -> None:
    """Serve ROOT and log the address."""
    parser = argparse.ArgumentParser(description="Serve the explorer over a folder of runs.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--port", type=int, default=5006)
    parser.add_argument("--session-seconds", type=float, default=30)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    def announce(url: str) -> None:
        logger.info("explorer at %s", url)

    serve(given.root, given.port, announce=announce, session_seconds=given.session_seconds)


if __name__ == "__main__":
    main()

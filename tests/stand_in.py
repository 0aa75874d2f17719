"""A chat server on this machine that says what a test tells it to."""

import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, end="stop", **message):
    """The JSON of an answer."""
    usage = {"prompt_tokens": 7, "completion_tokens": len(text.split())}
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": end}
    return {"choices": [choice], "usage": usage}


class StandIn:
    """What was asked, and what is answered.

    ``answer(body) -> (status, content, headers)`` or a text; content is JSON, bytes or None, which
    breaks the connection off.
    """

    def __init__(self, answer):
        self.answer = answer
        self.bodies, self.headers, self.paths = [], [], []
        self.busy, self.busiest = 0, 0
        self.lock = threading.Lock()

    def reply(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.bodies.append(body)
            self.headers.append(dict(handler.headers))
            self.paths.append(handler.path)
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
        try:
            told = self.answer(body)
        finally:
            with self.lock:
                self.busy -= 1
        told = (200, completion(told)) if isinstance(told, str) else told
        status, content, headers = (*told, {})[:3]
        if content is None:
            handler.close_connection = True
            return
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        handler.send_response(status)
        for name, value in {"Content-Length": len(data), **headers}.items():
            handler.send_header(name, str(value))
        handler.end_headers()
        handler.wfile.write(data)


@contextmanager
def serving(answer):
    """Serve on a free port of 127.0.0.1 and give (the stand-in, its url)."""
    state = StandIn(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            with suppress(BrokenPipeError, ConnectionResetError):  # the client gave up
                state.reply(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state, f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

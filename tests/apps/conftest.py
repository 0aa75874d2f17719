"""A served explorer over synthetic runs, and a browser that fails on anything it should not see."""

import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
PHONE = (
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/120 Mobile Safari/537.36"
)


def _writers(name):
    """Load a neighbor, under its name for tests that write runs of their own."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_runs, _personas, _emotions, _trust, _ = map(
    _writers, ("runs_root", "persona_runs", "emotion_runs", "trust_runs", "browsing")
)


@pytest.fixture(scope="session")
def writers():
    """The functions that write synthetic runs; see runs_root.py."""
    return _runs


@pytest.fixture(scope="session")
def full_root(tmp_path_factory):
    """A runs root in which every page has something to draw."""
    root = _personas.write_personas(_runs.write_all(tmp_path_factory.mktemp("runs")))
    _trust.write_trust(root)
    return _emotions.write_all_emotions(root)


class Served:
    """An explorer in its own process."""

    def __init__(self, root, *options):
        module = [sys.executable, "-m", "workbench_apps.explorer"]
        command = [*module, str(root), "--port", "0", *options]
        self.root = root
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        assert self.ready.wait(60), "".join(self.lines)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            if found and not self.ready.is_set():
                self.url = found[0].rstrip("/")
                self.ready.set()

    def log(self):
        return "".join(self.lines)

    def wait_for_log(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.log():
            assert time.monotonic() < end, f"{text!r} never came:\n{self.log()}"
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        self.reader.join(20)
        self.process.stderr.close()


@pytest.fixture(scope="session")
def serve():
    """``(root, *options) -> Served``; stopped at the end."""
    running = []

    def start(root, *options):
        running.append(Served(root, *options))
        return running[-1]

    yield start
    for served in running:
        served.stop()


@pytest.fixture(scope="session")
def served(serve, full_root):
    """The explorer over ``full_root``."""
    made = serve(full_root)
    urlopen(made.url + "/", timeout=120).close()
    return made


@pytest.fixture(scope="session")
def empty(serve, tmp_path_factory):
    """The explorer over a folder without runs."""
    return serve(tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="session")
def no_sideways_scroll():
    """``(page)``: neither the page nor its main part is wider than the window."""

    def check(page):
        code = "() => [document.documentElement.scrollWidth, window.innerWidth]"
        wide, room = page.evaluate(code)
        inner = page.locator("main").evaluate("it => [it.scrollWidth, it.clientWidth]")
        assert wide <= room
        assert inner[0] <= inner[1]

    return check


@pytest.fixture(scope="session")
def fits_a_phone(no_sideways_scroll):
    """``(page)``: a page opened dark has a closed sidebar and room, and so it is when light."""

    from playwright.sync_api import expect

    def painted(page, color):
        expect(page.locator("main")).to_have_css("background-color", color, timeout=60_000)

    def check(page):
        page.get_by_role("navigation", name="Pages").wait_for(state="hidden")
        painted(page, "rgb(18, 18, 18)")
        no_sideways_scroll(page)
        page.get_by_role("button", name=re.compile("theme", re.I)).click()
        painted(page, "rgb(255, 255, 255)")
        no_sideways_scroll(page)

    return check


@pytest.fixture(scope="session")
def chromium():
    """Headless Chromium; its absence is a failure with the line that mends it, never a skip."""
    if not Path(CHROMIUM).exists():
        pytest.fail(
            f"no browser at {CHROMIUM}; run `apt-get install chromium` (or set CHROMIUM=PATH)"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def context_of(chromium):
    """``(phone) -> browser context``: one for each kind, so that scripts are read once."""
    kept = {}

    def context(phone):
        if phone not in kept:
            more = {"user_agent": PHONE, "is_mobile": True, "has_touch": True} if phone else {}
            kept[phone] = chromium.new_context(accept_downloads=True, **more)
        return kept[phone]

    return context


@pytest.fixture
def open_page(context_of):
    """``(url, phone=False, width=1400) -> page``; fails on console errors and foreign requests."""
    wrong, pages = [], []

    def watch(page, base):
        page.on("pageerror", lambda error: wrong.append(f"page error: {error}"))
        page.on(
            "console",
            lambda message: (
                wrong.append(f"console: {message.text}") if message.type == "error" else None
            ),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((base, "data:", "blob:"))
                else wrong.append(f"off-host request: {request.url}")
            ),
        )

    def start(url, phone=False, width=1400):
        size = {"width": 390, "height": 1600} if phone else {"width": width, "height": 1400}
        page = context_of(phone).new_page()
        pages.append(page)
        page.set_viewport_size(size)
        page.set_default_timeout(60_000)
        watch(page, re.match(r"http://[^/]+", url)[0])
        page.goto(url)
        page.get_by_role("heading", level=1).wait_for()
        return page

    yield start
    for page in pages:
        page.close()
    assert wrong == []

"""A card that has the model do something: run, cancel, how the job stands, and a script to copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import panel as pn
import panel_material_ui as pmui
import param
from panel.custom import JSComponent
from workbench_apps.cards import Guard, escape, note
from workbench_apps.worker import CANCELED, FAILED, QUEUED, WORKER, Ticket

from workbench.errors import WorkbenchError

EVERY_MS = 250
_COPY_JS = """
export function render({model, el}) {
  const button = document.createElement('button');
  button.type = 'button';
  const label = () => { button.textContent = model.label };
  label();
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(model.text); button.textContent = 'Copied' }
    catch { button.textContent = 'Open the script below and copy it by hand' }
    setTimeout(label, 2500);
  };
  el.append(button);
}
"""
_COPY_STYLES = """
button { font: inherit; font-size: 13px; padding: 5px 12px; border-radius: 6px; cursor: pointer;
  color: inherit; background: none; border: 1px solid rgba(127, 127, 127, 0.6); }
button:hover { background: rgba(127, 127, 127, 0.14); }
button:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
"""


class Copy(JSComponent):
    """A button that puts ``text`` on the clipboard."""

    text = param.String("")
    label = param.String("Copy as script")
    _esm = _COPY_JS
    _stylesheets: ClassVar[list[str]] = [_COPY_STYLES]


def script(code: str) -> pn.Column:
    """Return the button and the script that it copies, folded away."""
    shown = f"<details><summary>Script</summary><pre><code>{escape(code)}</code></pre></details>"
    return pn.Column(
        Copy(text=code, margin=(8, 0, 4, 0)), note(shown), sizing_mode="stretch_width", margin=0
    )


def area(label: str, value: str, rows: int) -> Any:
    """Return a box for text that grows with it."""
    return pmui.TextAreaInput(
        label=label,
        value=value,
        rows=rows,
        max_rows=14,
        auto_grow=True,
        sizing_mode="stretch_width",
        margin=(8, 0),
    )


def no_model() -> pn.pane.HTML:
    """Say why nothing can be run."""
    return note(
        "<p class='warn'>No model is known for this run: neither its settings nor the runs that it "
        "was made from name one. Keep the caches and rollouts below the same folder.</p>"
    )


class Live:
    """Buttons and a line of one card; a poll carries what the model's process tells to the page.

    A poll runs in the session's own turn, so no other thread touches its document, and it ends with
    the session, which cancels the job.

    Args:
        place: for messages, such as ``/persona drift``.
        label: of the button that runs it.
        start: makes the ticket; what it raises is shown.
        take: called with what was told since the last time.
    """

    def __init__(
        self,
        place: str,
        label: str,
        start: Callable[[], Ticket],
        take: Callable[[list[Mapping[str, Any]]], None],
    ) -> None:
        self.place, self._start, self._take = place, start, take
        self.ticket: Ticket | None = None
        self._poll: Any = None
        self._note, self._began = "", 0.0
        self.run = pmui.Button(
            label=label, size="small", margin=(8, 8, 8, 0), on_click=lambda _: self.begin()
        )
        self.run.variant = "contained"
        self.cancel = pmui.Button(
            label="Cancel", size="small", margin=(8, 8, 8, 0), visible=False,
            on_click=lambda _: self.end(),
        )  # fmt: skip
        self.cancel.variant = "outlined"
        self.status = note("", margin=(2, 0))
        self.bar = pn.FlexBox(self.run, self.cancel, sizing_mode="stretch_width", margin=0)
        if pn.state.curdoc is not None:
            pn.state.on_session_destroyed(lambda _: self._leave())

    def begin(self) -> None:
        """Queue the job, unless one of this card is under way."""
        if self.ticket is not None and not self.ticket.over:
            return
        self._note, self._began = "", time.monotonic()
        with Guard(self.place) as guard:
            self.ticket = self._asked()
        if guard.card is not None:
            self.status.object = guard.card.object
        elif self.ticket is not None and not self.ticket.over:
            self._busy(True)
            self._poll = pn.state.add_periodic_callback(self.look, EVERY_MS)
            self.look()

    def _asked(self) -> Ticket | None:
        try:
            return self._start()
        except WorkbenchError as error:  # of what was typed: no fault of the page
            self.status.object = f"<p role='alert' class='warn'>{escape(error)}</p>"
            return None

    def end(self) -> None:
        """Cancel the job."""
        if self.ticket is not None and not self.ticket.over:
            WORKER.cancel(self.ticket)
            self.look()

    def _leave(self) -> None:
        if self.ticket is not None:
            WORKER.cancel(self.ticket)

    def look(self) -> None:
        """Carry over what was told, and say how the job stands."""
        ticket = self.ticket
        if ticket is None:
            return
        over = ticket.over  # before taking: what comes after is taken next time
        with Guard(self.place) as guard, pn.io.hold():
            parts = ticket.take()
            notes = [str(part["note"]) for part in parts if "note" in part]
            self._note = notes[-1] if notes else self._note
            told = [part for part in parts if "note" not in part]
            if told:
                self._take(told)
        if guard.card is not None:
            WORKER.cancel(ticket)
            self.status.object = guard.card.object
        else:
            self.status.object = self._said(ticket)
            self.cancel.disabled = ticket.stop.is_set()
        if over or guard.card is not None:
            self._settle()

    def _said(self, ticket: Ticket) -> str:
        seconds = time.monotonic() - self._began
        if ticket.state == FAILED:
            return f"<p role='alert' class='warn'>{escape(ticket.error)}</p>"
        if ticket.state == CANCELED:
            return "<p role='status' class='quiet'>Canceled.</p>"
        if ticket.over:
            return f"<p role='status' class='quiet'>Done in {seconds:.0f} s.</p>"
        clock = f" <span class='quiet' aria-hidden='true'>{seconds:.0f} s</span>"
        if ticket.state == QUEUED:
            ahead = WORKER.ahead(ticket)
            jobs = f"{ahead} job{'' if ahead == 1 else 's'} ahead" if ahead else "next"
            return f"<p role='status'>The model is busy: waiting, {jobs}.{clock}</p>"
        if ticket.stop.is_set():
            return "<p role='status'>Stopping.</p>"
        doing = self._note or "starting the model's process"
        return f"<p role='status'>{escape(doing[:1].upper() + doing[1:])}.{clock}</p>"

    def _settle(self) -> None:
        if self._poll is not None:
            self._poll.stop()
            self._poll = None
        self._busy(False)

    def _busy(self, on: bool) -> None:
        self.run.disabled, self.cancel.visible = on, on
        self.cancel.disabled = False

"""Page keys: what a browser listens for, and the pages that the number keys open."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

PAGES = (
    ("/", "Overview"),
    ("/map", "Activations map"),
    ("/truth", "Truth"),
    ("/dose", "Dose-response"),
    ("/probe", "Probe"),
    ("/persona", "Personas"),
    ("/emotions", "Emotions"),
    ("/trust", "Trust"),
)
NARROW = 700
"""Pixels under which the sidebar starts closed."""
_KEYS_JS = """
const PAGES = @pages;
export function render({model}) {
  const typing = (el) => el && (el.isContentEditable || el.tagName === 'TEXTAREA'
    || (el.tagName === 'INPUT' && el.type !== 'range' && el.type !== 'checkbox'));
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) { return }
    if (typing(event.composedPath()[0])) { return }
    if (event.key in PAGES) {
      const theme = new URLSearchParams(window.location.search).get('theme');
      window.location.href = PAGES[event.key] + (theme ? '?theme=' + theme : '');
    } else if (['[', ']', 'Escape'].includes(event.key)) {
      model.send_msg({key: event.key});
    }
  };
  const onBack = () => window.location.reload();
  document.addEventListener('keydown', onKey);
  window.addEventListener('popstate', onBack);
  // While the page comes up, messages of either side may get lost: say it until an answer comes.
  const timer = setInterval(() => {
    if (model.heard || window.innerWidth >= @narrow) { clearInterval(timer) }
    else { model.send_msg({narrow: true}) }
  }, 250);
  model.on('remove', () => {
    clearInterval(timer);
    document.removeEventListener('keydown', onKey);
    window.removeEventListener('popstate', onBack);
  });
}
""".replace("@narrow", str(NARROW)).replace(
    "@pages", json.dumps({str(number): path for number, (path, _) in enumerate(PAGES, 1)})
)


class Keys(JSComponent):
    """Listens for page keys, tells of a narrow window, and reloads when the back button is used.

    Keys are inactive while typing. ``on_key`` gets ``[``, ``]`` or ``Escape``.
    """

    heard = param.Integer(0)
    on_key = param.Callable(default=None)
    on_narrow = param.Callable(default=None)
    _rename: ClassVar[dict[str, str | None]] = {"on_key": None, "on_narrow": None}

    _esm = _KEYS_JS

    def _handle_msg(self, msg: dict[str, Any]) -> None:
        if msg.get("narrow") and self.on_narrow:
            self.on_narrow()
            self.heard += 1
        elif "key" in msg and self.on_key:
            self.on_key(msg["key"])

"""Replies that were paid for once: a file from which the same requests are answered again."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from workbench.chat.replies import ChatReply
from workbench.errors import FormatError, WorkbenchError
from workbench.files import make_folder
from workbench.plain import as_json

Asked = TypeVar("Asked")


def answer_once(
    store: ReplyStore | None,
    wanted: Mapping[str, Asked],
    answer: Callable[[dict[str, Asked]], Iterable[ChatReply]],
) -> dict[str, ChatReply]:
    """Return the reply to each key: what the store has, and the others answered together and kept.

    Args:
        store: None keeps nothing.
        wanted: by the hash of the request.
        answer: gives the replies to some of them, in order; it is not called without any.
    """
    found = {key: store.find(key) for key in wanted} if store is not None else {}
    replies = {key: reply for key, reply in found.items() if reply is not None}
    fresh = {key: asked for key, asked in wanted.items() if key not in replies}
    for key, reply in zip(fresh, answer(fresh) if fresh else (), strict=True):
        if store is not None:
            store.keep(key, reply)
        replies[key] = reply
    return replies


class ReplyStore:
    """Replies by the hash of their request, in one SQLite file that several processes may share.

    Each reply is written at once, so a killed run loses none but those that were under way.

    Args:
        path: such as ``replies.sqlite``; made where it is missing.

    Raises:
        FormatError: the file is no store of replies.
        WorkbenchError: it cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        make_folder(self.path.parent)
        self._lock = threading.Lock()
        with self._told(), closing(self._open()) as base, base:
            base.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT)")
            base.execute("SELECT key, reply FROM replies LIMIT 1")

    def find(self, key: str) -> ChatReply | None:
        """Return the reply to a request, or None."""
        with self._lock, self._told(), closing(self._open()) as base:
            found = base.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if found is None else ChatReply(**json.loads(found[0]))

    def keep(self, key: str, reply: ChatReply) -> None:
        """Write a reply down."""
        row = (key, as_json(reply))
        with self._lock, self._told(), closing(self._open()) as base, base:
            base.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", row)

    def __len__(self) -> int:
        with self._lock, self._told(), closing(self._open()) as base:
            return int(base.execute("SELECT count(*) FROM replies").fetchone()[0])

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise WorkbenchError(
                f"{self.path} cannot be read or written ({error}); free some space, or give "
                "another file for the replies"
            ) from error
        except sqlite3.DatabaseError as error:
            raise FormatError(
                f"{self.path} is no store of replies ({error}); give another file, or remove it "
                "and ask again"
            ) from error

"""The protocol itself: a request as JSON, what came back, and what that means."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from workbench.chat.replies import ChatReply, ChatRequest, without_thoughts

LOCAL = ("127.0.0.1", "localhost", "::1")
_LONGEST = 300


@dataclass(frozen=True)
class Sent:
    """What became of one HTTP request."""

    status: int
    """0 where there was no answer."""
    content: Any = None
    """The JSON of the answer; None where it was none."""
    failure: str = ""
    """``timeout`` or ``unreachable`` where there was no answer."""
    detail: str = ""
    retry_after: float | None = field(default=None)


class Sender:
    """Posts JSON to a server; never follows it elsewhere, since the key would go along.

    Args:
        url: up to the version.
        key: sent as a bearer token; None sends none.
        timeout: seconds.
    """

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self._url = url.rstrip("/") + "/chat/completions"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout = timeout
        direct = urlsplit(url).hostname in LOCAL
        proxies = [urllib.request.ProxyHandler({})] if direct else []
        self._opener = urllib.request.build_opener(_Stay(), *proxies)

    def __call__(self, body: Mapping[str, Any]) -> Sent:
        request = urllib.request.Request(
            self._url, json.dumps(body).encode(), self._headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return Sent(answer.status, _parsed(answer.read()))
        except urllib.error.HTTPError as error:
            with error:
                return _failed(error)
        except TimeoutError:
            return Sent(0, failure="timeout", detail=f"no answer in {self._timeout:g} s")
        except urllib.error.URLError as error:
            late = isinstance(error.reason, TimeoutError)
            return Sent(0, failure="timeout" if late else "unreachable", detail=str(error.reason))
        except (http.client.HTTPException, OSError) as error:
            detail = f"the connection broke: {type(error).__name__}"
            return Sent(0, failure="server error", detail=detail)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _failed(error: urllib.error.HTTPError) -> Sent:
    try:
        text = error.read().decode(errors="replace")
    except (http.client.HTTPException, OSError):
        text = ""
    content = _parsed(text.encode())
    told = content.get("error", content) if isinstance(content, dict) else text
    told = told.get("message", told) if isinstance(told, dict) else told
    after = error.headers.get("Retry-After", "")
    seconds = float(after) if after.replace(".", "", 1).isdigit() else None
    return Sent(error.code, content, detail=str(told)[:_LONGEST], retry_after=seconds)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def body_of(
    request: ChatRequest, model: str, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON of a request; ``extra`` goes over it, and its "" takes a key away."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
    }
    body |= {"logprobs": True, "top_logprobs": request.top} if request.top else {}
    return {name: value for name, value in (body | dict(extra or {})).items() if value != ""}


def reply_of(sent: Sent) -> ChatReply:
    """Say what an answer holds, or why it holds nothing."""
    if sent.failure:
        return ChatReply("", sent.failure, sent.detail)
    if sent.status == 429:
        return ChatReply("", "rate limit", sent.detail)
    if sent.status in (408, 409, 425) or sent.status >= 500:
        return ChatReply("", "server error", f"status {sent.status}: {sent.detail}")
    if sent.status != 200:
        reason = "refused" if _is_filter(sent.content) else "rejected"
        return ChatReply("", reason, f"status {sent.status}: {sent.detail}")
    try:
        return _read(sent.content)
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        return ChatReply("", "nonsense", f"{type(error).__name__}: {error}"[:_LONGEST])


def _is_filter(content: Any) -> bool:
    told = content.get("error") if isinstance(content, dict) else None
    return isinstance(told, dict) and told.get("code") == "content_filter"


def _read(content: Any) -> ChatReply:
    choice = content["choices"][0]
    message, end = choice["message"], choice.get("finish_reason")
    text = message.get("content") or ""
    if not isinstance(text, str):
        raise ValueError(f"content is {type(text).__name__}, no text")
    text = without_thoughts(text)
    if end == "content_filter" or message.get("refusal"):
        reason = "refused"
    elif end == "length":
        reason = "cut short"
    else:
        reason = "" if text else "empty"
    usage = content.get("usage") or {}
    tokens = (int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
    return ChatReply(text, reason, str(message.get("refusal") or ""), _top(choice), *tokens)


def _top(choice: Mapping[str, Any]) -> dict[str, float]:
    told = (choice.get("logprobs") or {}).get("content") or []
    first = told[0].get("top_logprobs") or [] if told else []
    return {str(row["token"]): float(row["logprob"]) for row in first}

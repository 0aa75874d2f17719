"""Asking a language model for text: a server that speaks the OpenAI protocol, or a loaded model.

`workbench.chat.local` has the loaded one.
"""

from workbench.chat.replies import ChatModel, ChatReply, ChatRequest
from workbench.chat.server import ChatServer, ServerConfig
from workbench.chat.store import ReplyStore

__all__ = [
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "ChatServer",
    "ReplyStore",
    "ServerConfig",
]

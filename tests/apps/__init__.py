"""Apps that keep their chats themselves, each with the requests that the real one was seen to send."""

from tests.apps.chat_app import ChatApp
from tests.apps.chat_apps import EXAMPLES, Aider, LibreChat, Llm, OpenWebUI, Script
from tests.apps.coding_apps import ClaudeCode, Codex, OpenCode, Pi
from tests.apps.lines import Kind, Line, Refused
from tests.apps.model import STOPPED_WORDS, TITLE, AppModel

__all__ = [
    "EXAMPLES",
    "STOPPED_WORDS",
    "TITLE",
    "Aider",
    "AppModel",
    "ChatApp",
    "ClaudeCode",
    "Codex",
    "Kind",
    "LibreChat",
    "Line",
    "Llm",
    "OpenCode",
    "OpenWebUI",
    "Pi",
    "Refused",
    "Script",
]

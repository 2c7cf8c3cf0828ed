"""The agent card of an assistant, as JSON: written by hand, so that discovery does not load the SDK."""

from __future__ import annotations

from importlib.metadata import version
from urllib.parse import quote

from tenuto.assistants import Assistant
from tenuto.assistants.assistant import in_language
from tenuto.model.prompt import Language
from tenuto.model.values import JsonObject

_TEXTS = ["text/plain", "application/json"]
# What a model does not take of these, the answer says.
_MEDIA = ["image/*", "audio/*", "text/*", "application/pdf"]


def agent_card(assistant: Assistant, base: str, *, needs_credential: bool) -> JsonObject:
    """The card of an assistant on the server at this address, with the fields that clients of 0.3 read beside."""
    url = f"{base}/a2a/{quote(assistant.name, safe='')}"
    title = in_language(assistant.titles, Language.ENGLISH) or assistant.name
    about = in_language(assistant.description, Language.ENGLISH) or title
    bindings = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"))
    card: JsonObject = {
        "name": title,
        "description": about,
        "version": version("tenuto"),
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": spoken} for binding, spoken in bindings
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": _TEXTS + _MEDIA,
        "defaultOutputModes": _TEXTS,
        "skills": [
            {"id": skill, "name": name, "description": about, "tags": ["chat"]}
            for skill, name in _characters(assistant) or [(assistant.name, title)]
        ],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3",
    }
    if needs_credential:
        scheme = {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "type": "http", "scheme": "Bearer"}
        card["securitySchemes"] = {"bearer": scheme}
        card["securityRequirements"] = [{"schemes": {"bearer": {}}}]
        card["security"] = [{"bearer": []}]
    return card


def _characters(assistant: Assistant) -> list[tuple[str, str]]:
    """The characters of an assistant, by id and name."""
    personas = assistant.personas.values()
    return [(persona.id, in_language(persona.names, Language.ENGLISH) or persona.id) for persona in personas]

"""How many lines each room of `src/tenuto` may have: what grows says so here, with its reason beside the figure."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import tenuto

SOURCE = Path(tenuto.__file__).parent
TOP = "files beside the rooms"
STORE_SCRIPTS = "stores, SQL and Lua"
CONSOLE = "console"

LIMITS = {
    "access": 1100,  # which users are one person: links, codes and claims, in one file
    "assistants": 3600,  # what the experts of a legal question did not get
    "channels": 1500,  # pictures and files of messages, which are downloaded
    "chat": 7200,  # turns of other processes; models by name; demanded forms; why an answer ended; thoughts; pictures
    "cli": 6800,  # attachments; people
    "client": 1800,  # `ask` and `scope` spell their parameters out, so that an editor completes them
    "context": 4150,  # what pictures, sounds and files take, and which of them stay; thoughts; uncut prompts
    "errors": 1010,  # a package that exports each by its name; a search that is off
    "gateway": 1350,  # files that a chat shows, what it is told of them; codes that link people
    "integrations": 4300,  # contents that frameworks have inside their messages
    "llm": 3900,  # which parameters reach which provider; our attempts; thoughts and items that go back; prompt caches
    "model": 6250,  # attachments, their types and bombs; parameters and their ranges; thoughts; status of workers
    "ports": 1300,  # search; logs of turns; telemetry: spans of agents and tools, models that are observed
    "privacy": 10500,  # thoughts, items, calls that are answers; erasing all identities of a person
    "recall": 4680,  # several identities as one copy; the stored index; removal in steps; what is forgotten stays so
    "server": 17440,  # search; attachments, also for A2A and MCP; apps; Anthropic; rates of all; workers; people
    "sessions": 5200,  # attachments as clients send them, without what cameras write, also where they were cut
    "settings": 750,  # where apps name sessions and users
    "stores": 16200,  # words of sessions, indexed and searched; logs of turns; attachments, entries of their own
    "telemetry": 550,  # spans and metrics by the conventions for generative AI; where they go
    "tasks": 5110,  # names that say what they hold wrap a few lines
    "upkeep": 3020,  # captures at pauses, claimed, found after a kill or damage; labels; long messages in parts
    "wiring": 1900,  # models opened when a request names them; models that a caller gives, which were read in app.py
    CONSOLE: 15200,  # what a search found; a choice of the model; attachments; people
    STORE_SCRIPTS: 1040,  # words of sessions; attachments are counted and copied
    TOP: 1500,  # background tasks, caches and pauses, once; `ask` and `scope`; when closing ends; people
}


def room_of(path: Path) -> str | None:
    """The room whose lines a file's count among; `None` for what others wrote, and for texts and pictures."""
    parts = path.relative_to(SOURCE).parts
    if "vendor" in parts:
        return None
    match path.suffix:
        case ".py":
            return parts[0] if len(parts) > 1 else TOP
        case ".sql" | ".lua":
            return STORE_SCRIPTS
        case ".js" | ".css" | ".html":
            return CONSOLE
    return None


def count_lines() -> Counter[str]:
    lines: Counter[str] = Counter()
    for path in SOURCE.rglob("*.*"):
        if (room := room_of(path)) is not None and path.is_file():
            lines[room] += path.read_bytes().count(b"\n")
    return lines


def test_no_room_is_larger_than_its_limit() -> None:
    lines = count_lines()

    beyond = [
        f"{room}: {lines[room]} lines, {lines[room] - limit} more than its limit of {limit}; make it smaller, or raise "
        "the limit here with the reason beside it"
        for room, limit in LIMITS.items()
        if lines[room] > limit
    ]
    assert not beyond, "\n".join(beyond)
    assert LIMITS.keys() == lines.keys(), "each room has a limit"

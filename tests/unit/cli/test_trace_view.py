"""What a trace says of the app that asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.cli.trace_view import show_trace
from tenuto.model.turn import Trace


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, None),
        ({"app": "codex"}, "codex"),
        ({"app": "codex", "app_task": "title"}, "codex, title"),
        ({"app": "codex", "store_overridden": True}, "codex; stored against its store: false"),
    ],
)
def test_a_trace_names_the_app_that_asked(
    capsys: pytest.CaptureFixture[str], fields: dict[str, Any], line: str | None
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    trace = Trace(id="t", session_id="s", turn_id="u", number=1, began_at=at, assistant="general", **fields)

    show_trace(trace)

    rows = dict(text.split(maxsplit=1) for text in capsys.readouterr().out.splitlines() if len(text.split()) > 1)
    assert rows.get("app") == line

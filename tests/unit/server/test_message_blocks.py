"""Messages of Anthropic's API in one form, whatever marks and forms of a text clients write."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.server.anthropic.message_blocks import plain_messages

MARK: Any = {"cache_control": {"type": "ephemeral"}}
TEXT: Any = {"type": "text", "text": "Hi"}
OTHER: Any = {"type": "text", "text": "there"}


@pytest.mark.parametrize(
    ("content", "plain"),
    [
        ("Hi", "Hi"),
        ([TEXT], "Hi"),
        ([{**TEXT, **MARK}], "Hi"),
        ([TEXT, {**OTHER, **MARK}], [TEXT, OTHER]),
        ([{"type": "image", **MARK}], [{"type": "image"}]),
        ([], []),
        (None, None),
        (["odd"], ["odd"]),
    ],
)
def test_marks_and_forms_of_a_text_make_no_other_message(content: Any, plain: Any) -> None:
    assert plain_messages([{"role": "user", "content": content}]) == [{"role": "user", "content": plain}]

"""Every code that a client may meet stands in the documented table, beside the status it comes with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tenuto.server
from tenuto.errors import Conflict, LimitReached, TenutoError
from tenuto.server.problems import _STATUS, ERROR_CODES, AccessDenied

DOCS = Path(tenuto.__file__).parents[2] / "docs" / "reference" / "http.md"
# These are never raised themselves: they are families to catch.
FAMILIES = (TenutoError, Conflict, LimitReached, AccessDenied)


def _kinds(kind: type[Exception]) -> Iterator[type[Exception]]:
    # What a client makes of a server's answer is no answer itself.
    if kind.__module__.startswith("tenuto.") and not kind.__module__.startswith("tenuto.client."):
        yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)


def _status(kind: type[Exception]) -> int:
    if issubclass(kind, AccessDenied):
        return kind.status
    return next((status for family, status in _STATUS if issubclass(kind, family)), 500)


def _documented() -> dict[int, set[str]]:
    rows = re.findall(r"^\| ((?:\d{3}(?:, )?)+) \| (.+) \|$", DOCS.read_text(), re.MULTILINE)
    return {
        int(status): set(re.findall(r"`(\w+)`", codes)) for statuses, codes in rows for status in statuses.split(", ")
    }


RAISED = sorted(
    {
        (kind.code, _status(kind))  # type: ignore[attr-defined]
        for root in (TenutoError, AccessDenied)
        for kind in _kinds(root)
        if kind not in FAMILIES
    }
)


@pytest.mark.parametrize(("code", "status"), RAISED)
def test_a_code_is_in_the_table_of_its_status(code: str, status: int) -> None:
    if code in ("invalid_setting", "api_key_not_found", "tool_error"):
        assert f"`{code}`" in DOCS.read_text()
    else:
        assert code in _documented()[status]


def test_the_enum_of_the_openapi_document_has_the_codes_of_every_problem() -> None:
    kinds = [kind for root in (TenutoError, AccessDenied) for kind in _kinds(root) if kind not in FAMILIES]
    # The terminal and the library have codes of their own, and so have OpenAI's routes.
    elsewhere = ("tenuto.cli.", "tenuto.server.openai.")
    codes = {(_status(kind), kind.code) for kind in kinds if not kind.__module__.startswith(elsewhere)}  # type: ignore[attr-defined]
    known = {(status, code) for status, codes in ERROR_CODES.items() for code in codes}

    assert codes - known == {(400, "invalid_setting"), (400, "tool_error")}
    # Those of the protocol, and a family that is raised itself.
    others = {"method_not_allowed", "request_timeout", "headers_too_large", "limit_reached"}
    assert {code for status, code in known - codes} == others

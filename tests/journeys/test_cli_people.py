"""An operator links users at the terminal, and a person with a code; what is exported and erased is the person's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.cli_runs import chat_session_id, run_command, run_json

pytestmark = pytest.mark.usefixtures("own_environment")
ANN, LARK = ("--user", "ann"), ("--user", "ou_ann")


@pytest.fixture(autouse=True)
def words_alone(own_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedder's weights take longer to load than these commands."""
    monkeypatch.setenv("TENUTO_EMBEDDER", "none")


def users(*options: str) -> list[str]:
    return [one["user"] for one in run_json("people", "show", *options)["identities"]]


def test_users_are_linked_shown_and_parted() -> None:
    run_json("memories", "add", "I am allergic to peanuts.", *LARK)
    nobody = run_command("people", "show", *ANN)
    run_json("people", "link", "ou_ann", *ANN)
    shown = run_command("people", "show", *LARK)
    code = run_json("people", "code", *ANN)["code"]
    run_json("people", "use", code, "--user", "ann@laptop")
    again = run_command("people", "use", code, "--user", "eve")
    found = run_json("memories", "search", "peanuts", "--user", "ann@laptop")["hits"]
    left = run_json("people", "unlink", "--identity", "ou_ann", *ANN)
    nameless = run_command("people", "code")
    acts = [entry["act"] for entry in run_json("privacy", "audit")["entries"]]

    assert nobody.stdout == "Linked with no other user.\n"
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["USER", "ann", "ou_ann"]
    assert (again.exit_code, again.stderr.partition(":")[0]) == (1, "link_code_refused")
    assert [hit["memory"]["text"] for hit in found] == ["I am allergic to peanuts."]
    assert [one["user"] for one in left["identities"]] == ["ann", "ann@laptop"]
    assert (users(*LARK), users(*ANN)) == ([], ["ann", "ann@laptop"])
    assert nameless.stderr.startswith("invalid: identities are linked for a user")
    assert acts == ["linked", "linked", "unlinked"]


def test_exports_and_erasure_are_the_persons(tmp_path: Path) -> None:
    sessions = {chat_session_id("Hello", user=name) for name in ("ann", "ou_ann")}
    chat_session_id("Hello", user="bob")
    for options, text in ((ANN, "I live in Bologna."), (LARK, "I am allergic to peanuts.")):
        run_json("memories", "add", text, *options)
    run_json("people", "link", "ou_ann", *ANN)

    exported = run_json("sessions", "export", "--all", "--output", str(tmp_path / "all"), *ANN)["exported"]
    remembered = json.loads(run_command("memories", "export", *ANN).stdout)["memories"]
    receipt = run_json("privacy", "erase", "--yes", "--out", "receipt.json", *LARK)
    checks = [
        run_command("privacy", "verify", "receipt.json", "--user", who).exit_code for who in ("ann", "ou_ann", "bob")
    ]

    assert {one["id"] for one in exported} == sessions
    assert {one["text"] for one in remembered} == {"I live in Bologna.", "I am allergic to peanuts."}
    assert (receipt["counts"]["sessions"], receipt["counts"]["identities"]) == (2, 2)
    assert checks == [0, 0, 1]
    assert (users(*ANN), run_json("memories", "list", *ANN)["memories"]) == ([], [])
    assert len(run_json("sessions", "list", "--user", "bob")["sessions"]) == 1

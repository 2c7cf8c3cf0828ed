"""The beginning or the end of an id that tenuto made is enough, where it fits one alone."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import tenuto
from tenuto.access import ApiKeys
from tenuto.cli import short_ids
from tenuto.model import NewSession
from tenuto.model.memory import MemoryKind
from tenuto.model.task import NewTask
from tenuto.ports import utc_now
from tests.journeys.cli_runs import run_command, run_json

pytestmark = pytest.mark.usefixtures("own_environment")

CLI_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
# Six of one minute, and two that a caller chose.
SESSIONS = [f"0198c0de-000{n}-7000-8000-0000000000a{n}" for n in range(6)]
CHOSEN = ["user-00a1", "beef"]


class Made(NamedTuple):
    """Whole ids of what is in the store."""

    session: str
    task: str
    memory: str
    trace: str
    key: str


async def _made() -> Made:
    async with tenuto.open() as app:
        ann = app.scope(user="ann")
        for session_id in (*SESSIONS, *CHOSEN):
            await app.sessions.create(ann, NewSession(title=f"Talk {session_id[-1]}"), session_id)
        reply = await app.ask(ann, "I live in Ulm.", session_id=SESSIONS[1])
        task = await app.tasks.open(ann, NewTask(type="review", session_id=SESSIONS[1]))
        memory = await (await app.memories()).add(ann, "I like tea.", kind=MemoryKind.FACT, subject="")
        key, _ = await ApiKeys(store=app.store.state, clock=utc_now).create(tenant="local")
        return Made(SESSIONS[1], task.id, memory.id, reply.trace_id, key.id)


@pytest.fixture
def made() -> Made:
    """A store with a few of everything."""
    return asyncio.run(_made())


READING = [
    "sessions show {session} --json",
    "sessions export {session} --json",
    "traces list --session {session} --json",
    "traces show {session} --json",
    "traces show --turn 1 {session} --json",
    "traces show {trace} --json",
    "tasks list --user ann --session {session} --json",
    "tasks show {task} --user ann --json",
    "tasks log {task} --user ann --json",
    "tasks log --user ann --session {session} --json",
    "memories list --user ann --session {session} --json",
    "memories search Ulm --user ann --session {session} --json",
    "attachments list {session} --json",
]
CHANGING = [
    "sessions rename {session} New --json",
    "sessions fork {session} --json",
    "sessions reset {session} --json",
    "chat --user ann --session {session} Hello. --json",
    "memories edit {memory} --user ann --text Coffee. --json",
    "memories forget {memory} --user ann --json",
    "memories forget --session {session} --user ann --yes --json",
    "tasks cancel {task} --user ann --json",
    "tasks delete {task} --user ann --yes --json",
    "sessions delete {session} --yes --json",
    "keys revoke {key} --json",
]


# Commands that end with an error here: one about what the id stands for, and not about the id.
REFUSED = {
    "tasks follow {task} --user ann": "task_cancelled",
    "tasks resume {task} --user ann": "the task has no plan",
    "tasks answer {task} approval yes --user ann": "step_not_found",
    "privacy reveal {session} EMAIL_1": "placeholder_not_found",
    "attachments export {session} none --output none.png": "attachment_not_found",
    "attachments delete {session} none --yes": "attachment_not_found",
}


PLAN = '[[steps]]\nid = "approval"\nhuman_input = "Send it?"\n'
RUN = "tasks run plan.toml --detach --user ann --session {session} --json"


def _line(command: str, ids: Made) -> list[str]:
    return command.format(**ids._asdict()).split()


def test_the_end_of_an_id_is_enough(made: Made) -> None:
    short = Made("00a1", made.task[-8:], made.memory[-8:], made.trace[-12:], made.key[:6])

    for command in READING:
        assert run_command(*_line(command, short)).stdout == run_command(*_line(command, made)).stdout != "", command
    Path("plan.toml").write_text(PLAN)
    assert json.loads(run_command(*_line(RUN, short)).stdout)["task"]["session_id"] == made.session
    for command in CHANGING:
        result = run_command(*_line(command, short))
        assert result.exit_code == 0, (command, result.output)

    left = {session["id"] for session in run_json("sessions", "list", "--all")["sessions"]}
    assert made.session not in left
    assert {*SESSIONS, *CHOSEN} - left == {made.session}
    assert made.task not in {task["id"] for task in run_json("tasks", "list", "--user", "ann")["tasks"]}
    assert run_json("keys", "list")["keys"][0]["revoked_at"] is not None


def test_an_error_is_about_what_the_short_id_stands_for(made: Made) -> None:
    short = Made("00a1", made.task[-8:], made.memory[-8:], made.trace[-12:], made.key[:6])
    assert run_command(*_line("tasks cancel {task} --user ann", made)).exit_code == 0

    for command, says in REFUSED.items():
        result = run_command(*_line(command, short), env={"TENUTO_PRIVACY_KEY": "11" * 32})
        assert (result.exit_code, says in result.output) == (1, True), (command, result.output)


def test_every_command_with_an_id_is_tried() -> None:
    page = CLI_PAGE.read_text()
    sections = re.findall(r"^### `tenuto ([a-z ]+[a-z]).*?`\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)
    taking = {command for command, text in sections if re.search(r"^\| `(--session )?ID` \|", text, re.MULTILINE)}
    tried = [*READING, *CHANGING, *REFUSED, RUN]

    assert len(taking) > 20
    assert {command for command in taking if not any(line.startswith(f"{command} ") for line in tried)} == set()


FITTING = [
    ("sessions show 0198c0de-0001", 0, "Talk 1"),
    ("sessions show …00a1", 0, "Talk 1"),
    ("sessions show 0198c0de", 1, "ambiguous_id: 6 sessions have an id that begins or ends with 0198c0de"),
    ("sessions delete 0198 --yes", 1, "ambiguous_id: 6 sessions"),
    ("chat --session 0198 Hello", 1, "ambiguous_id: 6 sessions"),
    # Too little, and ids that a caller chose: exactly, or not at all.
    ("sessions show 0a1", 1, "session_not_found"),
    ("sessions show user", 1, "session_not_found"),
    ("sessions show user-00", 1, "session_not_found"),
    ("sessions delete user-00a --yes", 1, "session_not_found"),
    ("sessions show beef", 0, "Talk f"),
    ("sessions show ffff", 1, "session_not_found"),
]


def test_what_fits_none_or_several(made: Made) -> None:
    for command, code, says in FITTING:
        result = run_command(*command.split())

        assert (result.exit_code, says in result.output) == (code, True), (command, result.output)
        if says.startswith("ambiguous"):
            listed = [line for line in result.stderr.splitlines() if line.startswith("  ")]
            assert (listed[0].split()[1:3], listed[5:]) == (["Talk", "1"], ["  and 1 more"])
    assert len(run_json("sessions", "list")["sessions"]) == len(SESSIONS) + len(CHOSEN)


def test_a_search_that_ends_before_the_last_id_says_so(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_ids, "_SEARCHED", 3)

    result = run_command("sessions", "show", "00a2")

    assert "(only the newest 3 sessions were searched for 00a2)" in result.stderr

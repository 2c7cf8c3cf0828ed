"""The tab key: in bash as people use it, and what zsh and fish are told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import tenuto
from tenuto.cli.completion import SHIPPED
from tenuto.model import NewSession
from tests.journeys.http_service import http_service
from tests.journeys.terminal import Shell

# Completes each line of standard input with the function that the printed script registers.
BASH = r"""
eval "$(tenuto --show-completion bash)"
while read -r -a COMP_WORDS; do
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    [[ ${COMP_WORDS[COMP_CWORD]} == _ ]] && COMP_WORDS[COMP_CWORD]=""
    _tenuto_completion tenuto
    echo "${COMPREPLY[*]}"
done
"""


async def seed(store: str) -> None:
    async with tenuto.open(store) as app:
        for user, session_id in (("ann", "ann-1"), ("bob", "bob-1"), ("bob", "bob two")):
            await app.sessions.create(app.scope(user=user), NewSession(title=f"Talk of {user}"), session_id)


def test_the_tab_key_completes_commands_options_ids_and_assistants(tmp_path: Path) -> None:
    shell, store = Shell(tmp_path), f"sqlite:///{tmp_path / 'chat.db'}"
    asyncio.run(seed(store))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.toml").write_text('name = "weather"')
    (tmp_path / "tenuto").write_text(f'#!/bin/sh\nexec {sys.executable} -m tenuto "$@"\n')
    (tmp_path / "tenuto").chmod(0o755)
    path = f"{tmp_path}:{shell.env['PATH']}"
    env = {**shell.env, "PATH": path, "TENUTO_STORE": store, "TENUTO_ASSISTANTS": str(tmp_path / "own")}
    lines = {
        "tenuto st": "stats",
        "tenuto sessions sh": "show",
        "tenuto sessions list --status a": "active archived",
        "tenuto sessions show _": "bob-1 ann-1",
        "tenuto sessions show --user ann _": "ann-1",
        "tenuto chat --assistant _": " ".join([*SHIPPED, "weather"]),
    }

    done = subprocess.run(
        ["bash", "-c", BASH], input="\n".join(lines) + "\n", env=env, cwd=tmp_path, capture_output=True, text=True
    )
    zsh = shell.run(
        env={**env, "_TENUTO_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "tenuto traces list --session a"}
    )
    fish = shell.run(
        env={
            **env,
            "_TENUTO_COMPLETE": "complete_fish",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_TYPER_COMPLETE_ARGS": "tenuto traces list --session b",
        }
    )

    assert (done.stdout.splitlines(), done.stderr) == ([*lines.values()], "")
    assert "ann-1" in zsh.stdout
    assert "Talk of ann" in zsh.stdout
    assert "bob-1\tTalk of bob" in fish.stdout


async def test_the_shipped_assistants_are_those_that_complete() -> None:
    async with http_service() as service:
        body = (await service.http.get("/v1/assistants")).json()

    assert sorted(each["name"] for each in body["assistants"]) == sorted(SHIPPED)

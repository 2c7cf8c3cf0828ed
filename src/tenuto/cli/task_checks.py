"""What the doctor says of tasks: agents, the engine and its database."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from tenuto.app import Tenuto
from tenuto.cli.checks import Finding, fail, ok, warn
from tenuto.cli.effective_settings import mask_password
from tenuto.cli.running import sqlite_file
from tenuto.errors import InvalidSetting, PackageMissing, Unavailable
from tenuto.extras import install_line
from tenuto.llm.reach import why_unreachable
from tenuto.settings import Settings
from tenuto.wiring.tasks import EXTRA, can_run_plans, engine_database, one_machine_notice

_CORRECT: Final = "correct the setting it names: no plan runs without it"


async def findings(app: Tenuto, *, with_engine: bool = True) -> list[Finding]:
    """Whether plans can run, and whether their events can be delivered; `with_engine` also asks the engine."""
    return [*await _engine_findings(app, with_engine), *await _webhook_findings(app.settings)]


async def _webhook_findings(settings: Settings) -> list[Finding]:
    url = settings.task_webhook
    if url is None:
        return []
    why = await why_unreachable(url)
    if why is not None:
        advice = "start what receives the events: they are sent again for a day"
        return [warn("task webhook", why, advice)]
    # The path of an address may be a secret.
    return [ok("task webhook", f"{urlsplit(url).hostname} takes connections")]


async def _engine_findings(app: Tenuto, with_engine: bool) -> list[Finding]:
    """The engine is opened only where plans run, since it takes long to import."""
    if app.settings.agents is None and not await app.tasks.has_runs():
        if not can_run_plans():
            says = f"the extra {EXTRA} is not installed, so no plan can run"
            return [warn("tasks", says, install_line(EXTRA))]
        return [ok("tasks", "no plan was run, and no agents are set; TENUTO_AGENTS names their folder")]
    database = "the engine's database"
    try:
        address = engine_database(app.settings)
        database, own, file = mask_password(address), app.agents.own, sqlite_file(address)
        # The doctor makes no file; a store in memory has none that lasts.
        lasts = not app.settings.store.startswith("memory:")
        if not with_engine or (lasts and file is not None and not file.exists()):
            says = f"no plan was run, and the engine has no database yet; agents here: {_names(own)}"
            return [ok("tasks", says)]
        running = await (await app.engine(worker=False)).agents()
    except PackageMissing as error:
        return [fail("tasks", str(error), error.install)]
    except InvalidSetting as error:
        return [fail("tasks", str(error), _CORRECT)]
    except Unavailable as error:
        return [fail("tasks", f"{database}: {error}", "start it, or correct TENUTO_TASKS_DATABASE")]
    notice = one_machine_notice(app.settings)
    says = f"{database}; agents here: {_names(own)}; agents of running workers: {_names(running)}"
    if notice is None:
        return [ok("tasks", says)]
    what, _, advice = notice.partition("; ")
    return [warn("tasks", f"{says}; {what}", advice)]


def _names(agents: frozenset[str]) -> str:
    return ", ".join(sorted(agents)) or "none"

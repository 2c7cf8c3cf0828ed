"""What the doctor says of tasks: agents, the engine and its database."""

from __future__ import annotations

from tenuto.app import Tenuto
from tenuto.cli.checks import CheckStatus, Finding
from tenuto.cli.effective_settings import mask_password
from tenuto.errors import InvalidSetting, Unavailable
from tenuto.wiring.tasks import engine_database, one_machine_notice


async def findings(app: Tenuto) -> list[Finding]:
    """Whether plans can run. The engine is opened only where they do, since it takes long to import."""
    if app.settings.agents is None and not await app.tasks.has_runs():
        return [_finding(CheckStatus.OK, "no plan was run, and no agents are set; TENUTO_AGENTS names their folder")]
    database = "the engine's database"
    try:
        database = mask_password(engine_database(app.settings))
        own = app.agents.own
        running = await (await app.engine(worker=False)).agents()
    except InvalidSetting as refused:
        return [_finding(CheckStatus.ERROR, str(refused), "correct the setting it names: no plan runs without it")]
    except Unavailable as away:
        return [_finding(CheckStatus.ERROR, f"{database}: {away}", "start it, or correct TENUTO_TASKS_DATABASE")]
    notice = one_machine_notice(app.settings)
    says = f"{database}; agents here: {_names(own)}; agents of running workers: {_names(running)}"
    if notice is None:
        return [_finding(CheckStatus.OK, says)]
    what, _, advice = notice.partition("; ")
    return [_finding(CheckStatus.WARNING, f"{says}; {what}", advice)]


def _finding(status: CheckStatus, message: str, advice: str | None = None) -> Finding:
    return Finding(name="tasks", status=status, message=message, advice=advice)


def _names(agents: frozenset[str]) -> str:
    return ", ".join(sorted(agents)) or "none"

"""How a command runs: for whom, on which store, with one event loop around an open installation, and what it prints."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer
from msgspec.structs import replace

from tenuto.app import Tenuto, open_app
from tenuto.cli.effective_settings import mask_password
from tenuto.cli.options import LOCAL, AsJson, Channel, Chat, Site, StoreUrl, Tenant, User
from tenuto.cli.terminal import show_json, visible
from tenuto.errors import InvalidSetting, StoreUnavailable
from tenuto.model import Scope
from tenuto.model.scope import check_tenant_id
from tenuto.model.values import Json
from tenuto.privacy.log_redaction import LogRedactor
from tenuto.settings import Settings, read_settings
from tenuto.stores.factory import is_network_store, sqlite_path
from tenuto.wiring.privacy import open_policies

_Answer = TypeVar("_Answer")


@dataclass(kw_only=True)
class Call:
    """The options that most commands have: for whom, on which store, and in which form the answer is printed.

    `program.py` puts those that a parameter of this type names into the command line.
    """

    tenant: Tenant = LOCAL
    site: Site = ""
    user: User = None
    channel: Channel = None
    chat: Chat = None
    store: StoreUrl = None
    as_json: AsJson = False
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant)
        if self.channel is not None and self.chat is None:
            raise typer.BadParameter("needs --chat", param_hint="--channel")
        self.scope = Scope(tenant=self.tenant, site=self.site, user=self.user, channel=self.channel, chat=self.chat)

    def run(
        self,
        story: Callable[[Tenuto], Awaitable[_Answer]],
        *,
        settings: Settings | None = None,
        making: bool = False,
        read_only: bool = False,
    ) -> _Answer:
        """Open the store that the options name and let the story use it; see `run_command`."""
        return run_command(story, store=self.store, settings=settings, making=making, read_only=read_only)

    def read(self, story: Callable[[Tenuto], Awaitable[_Answer]]) -> _Answer:
        """The same for a story that changes nothing."""
        return self.run(story, read_only=True)

    def show(self, document: Json, text: str | Callable[[], None]) -> None:
        """Print the document with --json; without, the line, or what the function prints."""
        if self.as_json:
            show_json(document)
        elif isinstance(text, str):
            typer.echo(visible(text))
        else:
            text()

    def command_line(self, *arguments: str) -> str:
        """A command of ours on the same store for the same caller, as a shell reads it."""
        return command_line(self.scope, self.store, *arguments)


UserCall: TypeAlias = Annotated[Call, ("tenant", "site", "user", "store", "as_json")]
SiteCall: TypeAlias = Annotated[Call, ("tenant", "site", "store", "as_json")]
TenantCall: TypeAlias = Annotated[Call, ("tenant", "store", "as_json")]
StoreCall: TypeAlias = Annotated[Call, ("store", "as_json")]
ChatCall: TypeAlias = Annotated[Call, ("tenant", "site", "user", "channel", "chat", "store", "as_json")]
# For commands that have a form of their own.
UserStore: TypeAlias = Annotated[Call, ("tenant", "site", "user", "store")]
ChatStore: TypeAlias = Annotated[Call, ("tenant", "site", "user", "channel", "chat", "store")]


def run_command(
    story: Callable[[Tenuto], Awaitable[_Answer]],
    *,
    store: str | None,
    settings: Settings | None = None,
    making: bool = False,
    read_only: bool = False,
) -> _Answer:
    """Open what the settings name (by default those that are read here), let the story use it, close it.

    With `making`, a SQLite file and its folder come into being. Without, a missing file is refused: a command that
    looks for sessions in the wrong folder should not answer that there are none.
    """
    settings = settings or read_settings(store=store)
    if making:
        make_folder(settings)
    else:
        file = sqlite_file(settings.store)
        if file is not None and not file.exists():
            raise InvalidSetting("store", f"there is no file {file.absolute()}; name the right one with --store")
    if store is None:
        tell_store(settings)

    async def run() -> _Answer:
        # A command reads everything once, so a cache in front of the store would only cost connections.
        async with open_app(replace(settings, l1=False), run_upkeep=False, read_only=read_only) as app:
            return await story(app)

    with naming_store(settings):
        return asyncio.run(run())


def for_one_person(settings: Settings) -> Settings:
    """Remember also without a user where the store is this machine's own: one person sits at the terminal.

    A store on a server is shared, so there the setting has to say it.
    """
    if settings.memories_without_user is None and not is_network_store(settings.store):
        return replace(settings, memories_without_user=True)
    return settings


@contextmanager
def naming_store(settings: Settings) -> Iterator[None]:
    """Name the address of a store that does not answer."""
    try:
        yield
    except StoreUnavailable as error:
        # Others of its kind say more, and keep their words.
        if str(error) != str(StoreUnavailable()):
            raise
        raise StoreUnavailable(f"session store at {shown_store(settings)}") from None


def command_line(scope: Scope, store: str | None, *arguments: str) -> str:
    """A command of ours on the same store for the same caller, as a shell reads it, without a password."""
    flags = {
        "--tenant": scope.tenant if scope.tenant != LOCAL else None,
        "--site": scope.site,
        "--user": scope.user,
        "--store": mask_password(store) if store else None,
    }
    options = [word for option, value in flags.items() if value for word in (option, value)]
    return visible(shlex.join(["tenuto", *arguments, *options]))


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite store, `None` for any other."""
    return sqlite_path(url) if url.startswith("sqlite:") else None


def shown_store(settings: Settings) -> str:
    """The store in a form that may be shown: a file's whole path, or an address without its password."""
    file = sqlite_file(settings.store)
    return mask_password(settings.store) if file is None else str(file.absolute())


def tell_store(settings: Settings) -> None:
    """Name the store that was not named by an option, at a terminal only: what scripts read stays as it was."""
    if sys.stderr.isatty():
        typer.echo(f"store: {visible(shown_store(settings))}", err=True)


def make_folder(settings: Settings) -> None:
    """Make the folder a SQLite store lies in: below the working folder with all above it, elsewhere that one alone.

    A path from the root that leads through several folders which do not exist is a mistyped one.

    Raises:
        InvalidSetting: it cannot be made, or the folder around it does not exist.
    """
    file = sqlite_file(settings.store)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=not file.is_absolute(), exist_ok=True)
    except OSError as error:
        raise InvalidSetting("store", f"cannot make the folder {file.parent}: {error.strerror}") from error


class _SafeFormatter(logging.Formatter):
    def __init__(self, clean: Callable[[str], str]) -> None:
        super().__init__("%(levelname)s: %(message)s")
        self._clean = clean

    def format(self, record: logging.LogRecord) -> str:
        return visible(self._clean(super().format(record)), lines=True)


def log_to_stderr() -> None:
    """Let warnings of the rooms reach the terminal, without what could steer it or may not stand in a log."""
    printer = logging.StreamHandler()
    printer.setFormatter(_SafeFormatter(LogRedactor(lambda: open_policies(read_settings()))))
    logging.basicConfig(level=logging.WARNING, handlers=[printer])

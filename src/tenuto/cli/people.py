"""`tenuto people`: which users of a site are one person."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import asdict

from tenuto.access import LinkCode, Person
from tenuto.app import Tenuto
from tenuto.cli.options import argument, option
from tenuto.cli.running import Call, UserCall
from tenuto.cli.terminal import moment, operator_name, show_table
from tenuto.model.values import JsonObject, check_id

people = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Link users who are one person, show them, part them."
)
OtherUser = Annotated[str, argument("USER", "The other user.", callback=lambda value: check_id(value, "the user id"))]


@people.command("show")
def show(call: UserCall) -> None:
    """Show the users who are the same person as --user."""
    _print_person(call, call.read(lambda app: app.people.find(call.scope)))


@people.command("link")
def link(call: UserCall, other: OtherUser) -> None:
    """Make --user and another user the same person.

    Memories, preferences and the profile are then those of both; sessions stay where they are.
    """
    _print_person(call, call.run(lambda app: app.people.link(call.scope, other, by=operator_name())))


@people.command("unlink")
def unlink(
    call: UserCall,
    other: Annotated[str | None, option("ID", "Part this user of the person; by default --user.", "--identity")] = None,
) -> None:
    """Part a user from the others; each keeps what was said as this user."""
    _print_person(call, call.run(lambda app: app.people.unlink(call.scope, other, by=operator_name())))


@people.command("code")
def code(call: UserCall) -> None:
    """Show a code that links --user with whoever uses it, once."""

    async def show_code(app: Tenuto) -> LinkCode:
        return await app.people.show_code(call.scope)

    shown = call.run(show_code)
    call.show(
        {"code": shown.text, "expires_at": shown.expires_at.isoformat()},
        f"{shown.text} links user {call.scope.user} with whoever uses it, until {moment(shown.expires_at)}.",
    )


@people.command("use")
def use(call: UserCall, text: Annotated[str, argument("CODE", "Code that was shown to the other user.")]) -> None:
    """Link --user with the user to whom a code was shown."""
    _print_person(call, call.run(lambda app: app.people.use_code(call.scope, text, by=operator_name())))


def _print_person(call: Call, person: Person | None) -> None:
    identities = () if person is None else person.identities
    document: JsonObject = {
        "id": None if person is None else person.id,
        "identities": [asdict(one) for one in identities],
    }
    rows = [(one.user, moment(one.linked_at), one.how, one.by) for one in identities]
    call.show(
        document,
        (lambda: show_table(("USER", "LINKED", "HOW", "BY"), rows, flexible="USER"))
        if rows
        else "Linked with no other user.",
    )

"""`tenuto attachments`: the pictures, sounds and files of a session, one saved or removed by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tenuto.app import Tenuto
from tenuto.cli.options import STDIN, SessionId, Yes, argument, confirm, option
from tenuto.cli.running import UserCall
from tenuto.cli.short_ids import whole_session_id
from tenuto.cli.terminal import pluralize, show_table
from tenuto.cli.transfer import write_atomically
from tenuto.errors import AttachmentNotFound, Invalid
from tenuto.model import Attachment, Content, Scope, Session
from tenuto.sessions.views import AttachmentList, SessionView

attachments = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List, export and delete attachments of a session."
)
AttachmentId = Annotated[str, argument("ATTACHMENT", "ID of the attachment, or how it begins.")]


@attachments.command("list")
def list_attachments(call: UserCall, session_id: SessionId) -> None:
    """List the attachments of a session."""
    found = call.read(lambda app: _load(app, call.scope, session_id))
    call.show(AttachmentList.of(found), lambda: _print_attachments(found))


async def _load(app: Tenuto, scope: Scope, session_id: str) -> tuple[Attachment, ...]:
    return await app.sessions.attachments(scope, await whole_session_id(app, scope, session_id))


def _print_attachments(found: tuple[Attachment, ...]) -> None:
    if not found:
        typer.echo("No attachments.")
        return
    rows = [(one.id, one.media_type, f"{one.size:,}", ", ".join(map(str, one.seqs)), one.name or "-") for one in found]
    show_table(("ID", "TYPE", "BYTES", "MESSAGES", "NAME"), rows, flexible="NAME", numbers=("BYTES",), ids="ID")


@attachments.command("export")
def export_attachment(
    call: UserCall,
    session_id: SessionId,
    attachment_id: AttachmentId,
    output: Annotated[
        Path | None, option("FILE", "File to write; by default standard output.", "--output", "-o")
    ] = None,
) -> None:
    """Write the bytes of an attachment to a file."""
    file = None if output is None or str(output) == STDIN else output
    if file is None and sys.stdout.isatty():
        raise typer.BadParameter("bytes are not for a terminal: name a file, or a pipe", param_hint="--output")
    if call.as_json and file is None:
        raise typer.BadParameter("needs a file in --output", param_hint="--json")

    async def read(app: Tenuto) -> Content:
        source = await whole_session_id(app, call.scope, session_id)
        attachment = await _find(app, call.scope, source, attachment_id)
        return await app.sessions.attachment(call.scope, source, attachment.id)

    content = call.read(read)
    if file is None:
        sys.stdout.buffer.write(content.data)
        return
    with write_atomically(file) as opened:
        size = opened.write(content.data)
    document = {"id": content.id, "media_type": content.media_type, "file": str(file), "bytes": size}
    call.show(document, f"{pluralize(size, 'byte')} of {content.media_type} written to {file}.")


@attachments.command("delete")
def delete_attachment(call: UserCall, session_id: SessionId, attachment_id: AttachmentId, yes: Yes = False) -> None:
    """Delete an attachment; the messages that showed it stay, with a mark in its place."""
    if not yes:
        confirm("delete", f"attachment {attachment_id}", as_json=call.as_json)

    async def remove(app: Tenuto) -> tuple[Attachment, Session]:
        source = await whole_session_id(app, call.scope, session_id)
        attachment = await _find(app, call.scope, source, attachment_id)
        return attachment, await app.sessions.remove_attachment(call.scope, source, attachment.id)

    attachment, session = call.run(remove)
    shown = pluralize(len(attachment.seqs), "message")
    call.show(SessionView.of(session), f"Attachment {attachment.id} is gone; {shown} showed it.")


async def _find(app: Tenuto, scope: Scope, session_id: str, text: str) -> Attachment:
    """The attachment of a session that an id, or the beginning of one, names."""
    fitting = [one for one in await app.sessions.attachments(scope, session_id) if one.id.startswith(text)]
    if len(fitting) > 1:
        raise Invalid(f"{len(fitting)} attachments begin like this; give more of the ID")
    if not text or not fitting:
        raise AttachmentNotFound
    return fitting[0]

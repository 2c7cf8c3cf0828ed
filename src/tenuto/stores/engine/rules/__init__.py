"""The rules of a session: pure functions `(record, command, now) -> Step`, the one text of what a session is.

They do no I/O, read no clock, draw no random numbers, and leave their input alone. What a rule refuses, it raises.
"""

from tenuto.stores.engine.rules.access import read_attachments, read_head, read_lease, read_page, read_record
from tenuto.stores.engine.rules.edits import delete, fork, patch, remove_attachment, reset, rewrite, truncate
from tenuto.stores.engine.rules.turns import append, begin, finish, renew
from tenuto.stores.engine.rules.words import forget_words, index_words

__all__ = [
    "append",
    "begin",
    "delete",
    "finish",
    "forget_words",
    "fork",
    "index_words",
    "patch",
    "read_attachments",
    "read_head",
    "read_lease",
    "read_page",
    "read_record",
    "remove_attachment",
    "renew",
    "reset",
    "rewrite",
    "truncate",
]

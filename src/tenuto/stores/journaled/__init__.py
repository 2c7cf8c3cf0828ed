"""Turns go on while the store is down: they are kept on this machine's disk and replayed once it is back."""

from tenuto.stores.journaled.files import JournalCounts, count_journal
from tenuto.stores.journaled.journal import JournalState
from tenuto.stores.journaled.outbox import Outbox
from tenuto.stores.journaled.store import JournaledStore

__all__ = ["JournalCounts", "JournalState", "JournaledStore", "Outbox", "count_journal"]

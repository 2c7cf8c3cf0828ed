"""The folder of a journal on a disk: `DiskFolder`, shared by the processes of a machine.

    journal.db       rows, and the records they go on from; one SQLite file for all processes
    shared           what is read with every call, mapped into memory: the state, votes, noted revisions
    member-3.lock    locked by the third process for as long as it lives

`files` is the database, `shared` the memory, `members` who lives, `thread` the one thread that waits for the disk.
"""

from tenuto.stores.engine.journal_files.files import count_journal, files_from_before, list_quarantined
from tenuto.stores.engine.journal_files.folder import DiskFolder

__all__ = ["DiskFolder", "count_journal", "files_from_before", "list_quarantined"]

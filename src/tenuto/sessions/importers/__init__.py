"""Import of the stores that people leave: readers of their files, and what writes the sessions and memories found.

A reader is a plain function from a file to the records in it. It reads them one by one, and it names what it leaves
out and why.
"""

from tenuto.sessions.importers.records import FoundMemory, FoundSession, Record, Skipped
from tenuto.sessions.importers.sources import SOURCES, read_source
from tenuto.sessions.importers.writer import ImportReport, import_records

__all__ = [
    "SOURCES",
    "FoundMemory",
    "FoundSession",
    "ImportReport",
    "Record",
    "Skipped",
    "import_records",
    "read_source",
]

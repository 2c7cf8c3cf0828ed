"""Tasks that agents share: opened, written on, noted in private, ended, and gone when their time is over."""

from tenuto.tasks.board import Board
from tenuto.tasks.notes import Notes
from tenuto.tasks.protected_store import ProtectedStore
from tenuto.tasks.service import Tasks

__all__ = ["Board", "Notes", "ProtectedStore", "Tasks"]

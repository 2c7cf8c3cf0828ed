"""What can go wrong between this process and a Redis or Valkey server."""

from __future__ import annotations


class CallFailed(Exception):
    """The server could not be asked, or did not answer in time."""


class ConnectionLost(CallFailed):
    """The connection went away: a call on its way may or may not have run."""


class Unsent(ConnectionLost):
    """There was no connection to send the call on: it certainly did not run."""


class CallTimeout(CallFailed):
    """No answer within the call's time; it may still run."""


class ResponseError(CallFailed):
    """The server answered with an error. `code` is the first word of that error, `full` tells of a disk without room.

    The rest of the server's sentence is left out: it may quote arguments, and
    arguments are what users said.
    """

    def __init__(self, code: str, *, full: bool = False) -> None:
        super().__init__(f"the server refused the call: {code}")
        self.code = code
        self.full = full

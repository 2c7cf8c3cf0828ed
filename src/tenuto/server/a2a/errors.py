"""Our errors in the words of the protocol."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from a2a.utils.errors import A2AError, InternalError, InvalidParamsError, TaskNotFoundError, UnsupportedOperationError

from tenuto.errors import Conflict, Invalid, NotFound, TenutoError, TooLarge, VersionConflict
from tenuto.logs import describe_exception
from tenuto.server.problems import AccessDenied
from tenuto.task_errors import TaskNotFound

_log = logging.getLogger(__name__)


@contextmanager
def translating() -> Iterator[None]:
    """Our errors in the words of the protocol; what is not expected is logged and not told."""
    try:
        yield
    except A2AError:
        raise
    except TaskNotFound as error:
        raise TaskNotFoundError from error
    except VersionConflict as error:
        raise UnsupportedOperationError(message="another message to the task arrived first") from error
    except (Invalid, TooLarge, NotFound) as error:
        raise InvalidParamsError(message=f"{error.code}: {error}") from error
    except Conflict as error:
        raise UnsupportedOperationError(message=f"{error.code}: {error}") from error
    except AccessDenied as error:
        raise InvalidParamsError(message=f"{error.code}: {error}") from error
    except TenutoError as error:
        raise InternalError(message=f"{error.code}: {error}") from error
    except Exception as error:
        _log.error("a call failed: %s", describe_exception(error))
        raise InternalError(
            message="internal error; the server's log has the details under this x-request-id"
        ) from error

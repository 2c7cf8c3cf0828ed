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
    except TaskNotFound as absent:
        raise TaskNotFoundError from absent
    except VersionConflict as late:
        raise UnsupportedOperationError(message="another message to the task arrived first") from late
    except (Invalid, TooLarge, NotFound) as unfit:
        raise InvalidParamsError(message=f"{unfit.code}: {unfit}") from unfit
    except Conflict as conflict:
        raise UnsupportedOperationError(message=f"{conflict.code}: {conflict}") from conflict
    except AccessDenied as refused:
        raise InvalidParamsError(message=f"{refused.code}: {refused}") from refused
    except TenutoError as error:
        raise InternalError(message=f"{error.code}: {error}") from error
    except Exception as failed:
        _log.error("a call failed: %s", describe_exception(failed))
        raise InternalError(
            message="internal error; the server's log has the details under this x-request-id"
        ) from failed

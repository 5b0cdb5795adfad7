"""Errors that state a fact, each with its HTTP status; one handler renders them all."""

from __future__ import annotations


class ServiceError(Exception):
    """Base of all errors a caller may see; `status` is the HTTP status, the message says what to do, and `field` names
    the field of a form that it is about, where it is about one."""

    status = 500
    field = ""

    def __init__(self, detail: str, *, field: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field or self.field


class ConfigurationError(ServiceError):
    """A setting is missing or wrong."""


class Unauthorized(ServiceError):
    """No token, or one that is wrong, expired or revoked."""

    status = 401


class SignatureInvalid(ServiceError):
    """The webhook's signature does not fit its body."""

    status = 401


class Forbidden(ServiceError):
    """The token is right but its scope does not allow this."""

    status = 403


class NotFound(ServiceError):
    """Base of the errors of things that do not exist."""

    status = 404


class ProjectNotFound(NotFound):
    """No project of that name."""


class JobNotFound(NotFound):
    """No job of that number."""


class AttemptNotFound(NotFound):
    """No attempt of that number."""


class ReportNotFound(NotFound):
    """The job has no accepted report."""


class RegressionNotFound(NotFound):
    """No regression of that number."""


class WorkerNotFound(NotFound):
    """No worker of that name said hello."""


class TokenNotFound(NotFound):
    """No token of that number."""


class CommitNotFound(NotFound):
    """No commit known that begins with that SHA."""


class InputSetNotFound(NotFound):
    """No input set of that name or hash."""


class TrainingNotFound(NotFound):
    """No training of that name."""


class Conflict(ServiceError):
    """Base of the errors of requests that do not fit the present state."""

    status = 409


class LeaseLost(Conflict):
    """The attempt is no longer this worker's: stop, what it measures is not the result."""


class WorkerReplaced(Conflict):
    """Another worker has been started under the same name since: this one gets no more work."""


class WorkerDrained(Conflict):
    """The worker is drained already, by somebody who may still need that."""


class JobNotOpen(Conflict):
    """The job has ended already."""


class ProjectArchived(Conflict):
    """The project's repository is archived or deleted: it gets no new jobs."""


class JobNotWaiting(Conflict):
    """The job does not wait for an approval."""


class InvalidRequest(ServiceError):
    """The request is well-formed HTTP but its content is wrong."""

    status = 422


class PayloadInvalid(ServiceError):
    """The webhook's body is not the JSON that GitHub documents for its event."""

    status = 400


class PayloadTooLarge(ServiceError):
    """The body is larger than the service accepts."""

    status = 413


class TooManyRequests(ServiceError):
    """This client did it too often; `retry_after` says when it may again, in seconds."""

    status = 429

    def __init__(self, detail: str, retry_after: int) -> None:
        super().__init__(detail)
        self.retry_after = retry_after

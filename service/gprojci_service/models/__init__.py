"""All tables, one per file."""

from gprojci_service.models.attempt import Attempt
from gprojci_service.models.audit_event import AuditEvent
from gprojci_service.models.base import Base, now
from gprojci_service.models.bisection import Bisection
from gprojci_service.models.build import Build
from gprojci_service.models.commit import Commit
from gprojci_service.models.ended_session import EndedSession
from gprojci_service.models.github_report import GithubReport
from gprojci_service.models.imported_report import ImportedReport
from gprojci_service.models.input_file import InputFile
from gprojci_service.models.input_set import InputSet
from gprojci_service.models.job import Job
from gprojci_service.models.log_chunk import LogChunk
from gprojci_service.models.notification import Notification
from gprojci_service.models.notification_channel import NotificationChannel
from gprojci_service.models.override import Override
from gprojci_service.models.person import Person
from gprojci_service.models.project import Project
from gprojci_service.models.pull_request import PullRequest
from gprojci_service.models.pull_request_comment import PullRequestComment
from gprojci_service.models.regression import Regression
from gprojci_service.models.regression_event import RegressionEvent
from gprojci_service.models.regression_series import RegressionSeries
from gprojci_service.models.report import Report
from gprojci_service.models.sample import Sample
from gprojci_service.models.schedule import Schedule
from gprojci_service.models.series import Series
from gprojci_service.models.series_step import SeriesStep
from gprojci_service.models.token import Token
from gprojci_service.models.training import Training
from gprojci_service.models.training_run import TrainingRun
from gprojci_service.models.verdict import Verdict
from gprojci_service.models.webhook_delivery import WebhookDelivery
from gprojci_service.models.worker import Worker

__all__ = [
    "Attempt",
    "AuditEvent",
    "Base",
    "Bisection",
    "Build",
    "Commit",
    "EndedSession",
    "GithubReport",
    "ImportedReport",
    "InputFile",
    "InputSet",
    "Job",
    "LogChunk",
    "Notification",
    "NotificationChannel",
    "Override",
    "Person",
    "Project",
    "PullRequest",
    "PullRequestComment",
    "Regression",
    "RegressionEvent",
    "RegressionSeries",
    "Report",
    "Sample",
    "Schedule",
    "Series",
    "SeriesStep",
    "Token",
    "Training",
    "TrainingRun",
    "Verdict",
    "WebhookDelivery",
    "Worker",
    "now",
]

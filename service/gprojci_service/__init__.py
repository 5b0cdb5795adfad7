"""GProj CI's web service: webhooks, jobs, results, decisions and pages."""

__version__ = "0.1.0"

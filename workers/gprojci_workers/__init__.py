"""GProj CI's worker: claims a job, fetches, builds, has it measured, reports."""

__version__ = "0.1.0"

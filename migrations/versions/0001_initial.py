"""The tables of the first release.

Revision ID: 0001
Revises:
Created: 2026-11-29 23:20:59.145418
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "input_set",
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", JSON_COLUMN, nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_input_set")),
        sa.UniqueConstraint("content_hash", name=op.f("uq_input_set_content_hash")),
    )
    op.create_index(op.f("ix_input_set_name"), "input_set", ["name"], unique=False)

    op.create_table(
        "project",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("github_id", sa.BigInteger(), nullable=True),
        sa.Column("clone_url", sa.String(), nullable=False),
        sa.Column("html_url", sa.String(), nullable=True),
        sa.Column("default_branch", sa.String(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=True),
        sa.Column("hardware", JSON_COLUMN, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("github_id", name=op.f("uq_project_github_id")),
        sa.UniqueConstraint("name", name=op.f("uq_project_name")),
    )
    op.create_table(
        "token",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint("scope IN ('worker', 'write')", name=op.f("ck_token_scope")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("hash", name=op.f("uq_token_hash")),
    )
    op.create_table(
        "webhook_delivery",
        sa.Column("delivery_id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=True),
        sa.Column("payload", JSON_COLUMN, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("processed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_delivery")),
        sa.UniqueConstraint("delivery_id", name=op.f("uq_webhook_delivery_delivery_id")),
    )
    op.create_index(op.f("ix_webhook_delivery_received_at"), "webhook_delivery", ["received_at"], unique=False)
    op.create_index(op.f("ix_webhook_delivery_state"), "webhook_delivery", ["state"], unique=False)

    op.create_table(
        "worker",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("device_name", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("environment", JSON_COLUMN, nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
        sa.UniqueConstraint("name", name=op.f("uq_worker_name")),
    )
    op.create_table(
        "commit",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("sha", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=True),
        sa.Column("author_name", sa.String(), nullable=True),
        sa.Column("author_email", sa.String(), nullable=True),
        sa.Column("authored_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("parents", JSON_COLUMN, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_commit_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commit")),
        sa.UniqueConstraint("project_id", "sha", name=op.f("uq_commit_project_id_sha")),
    )
    op.create_table(
        "pull_request",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("author_login", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("draft", sa.Boolean(), nullable=False),
        sa.Column("from_fork", sa.Boolean(), nullable=False),
        sa.Column("head_sha", sa.String(), nullable=False),
        sa.Column("head_ref", sa.String(), nullable=False),
        sa.Column("base_sha", sa.String(), nullable=False),
        sa.Column("base_ref", sa.String(), nullable=False),
        sa.Column("html_url", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_pull_request_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pull_request")),
        sa.UniqueConstraint("project_id", "number", name=op.f("uq_pull_request_project_id_number")),
    )
    op.create_table(
        "series",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("backend", sa.String(), nullable=False),
        sa.Column("case", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("ruler_revision", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_series_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint(
            "project_id",
            "backend",
            "case",
            "metric",
            "hardware",
            "ruler_revision",
            name=op.f("uq_series_project_id_backend_case_metric_hardware_ruler_revision"),
        ),
    )
    op.create_index(op.f("ix_series_project_id"), "series", ["project_id"], unique=False)

    op.create_table(
        "job",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("dedup_key", sa.String(), nullable=False),
        sa.Column("head_sha", sa.String(), nullable=False),
        sa.Column("base_sha", sa.String(), nullable=True),
        sa.Column("merge_base_sha", sa.String(), nullable=True),
        sa.Column("ref", sa.String(), nullable=True),
        sa.Column("pull_request_id", BIG_KEY, nullable=True),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("failure_kind", sa.String(), nullable=True),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("approved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_by_id", BIG_KEY, nullable=True),
        sa.Column("retry_of_id", BIG_KEY, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint(
            "state IN ('awaiting_approval', 'queued', 'running', 'deciding', 'finished', 'cancelled')",
            name=op.f("ck_job_state"),
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_job_project_id_project")),
        sa.ForeignKeyConstraint(
            ["pull_request_id"], ["pull_request.id"], name=op.f("fk_job_pull_request_id_pull_request")
        ),
        sa.ForeignKeyConstraint(["retry_of_id"], ["job.id"], name=op.f("fk_job_retry_of_id_job")),
        sa.ForeignKeyConstraint(["superseded_by_id"], ["job.id"], name=op.f("fk_job_superseded_by_id_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("dedup_key", name=op.f("uq_job_dedup_key")),
    )
    op.create_index("ix_job_claim", "job", ["hardware", "state", "id"], unique=False)
    op.create_index(op.f("ix_job_created_at"), "job", ["created_at"], unique=False)
    op.create_index("ix_job_project_head", "job", ["project_id", "head_sha"], unique=False)
    op.create_index(op.f("ix_job_pull_request_id"), "job", ["pull_request_id"], unique=False)
    op.create_index(op.f("ix_job_state"), "job", ["state"], unique=False)

    op.create_table(
        "attempt",
        sa.Column("job_id", BIG_KEY, nullable=False),
        sa.Column("worker_id", BIG_KEY, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("claim_id", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("step", sa.String(), nullable=True),
        sa.Column("steps", JSON_COLUMN, nullable=False),
        sa.Column("failure_kind", sa.String(), nullable=True),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint(
            "state IN ('running', 'reported', 'failed', 'lost', 'cancelled')", name=op.f("ck_attempt_state")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_attempt_job_id_job")),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.id"], name=op.f("fk_attempt_worker_id_worker")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("claim_id", name=op.f("uq_attempt_claim_id")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempt_job_id_number")),
    )
    op.create_index(op.f("ix_attempt_job_id"), "attempt", ["job_id"], unique=False)
    op.create_index(op.f("ix_attempt_lease_expires_at"), "attempt", ["lease_expires_at"], unique=False)
    op.create_index(op.f("ix_attempt_state"), "attempt", ["state"], unique=False)
    op.create_index(op.f("ix_attempt_worker_id"), "attempt", ["worker_id"], unique=False)

    op.create_table(
        "github_report",
        sa.Column("job_id", BIG_KEY, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("payload", JSON_COLUMN, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint("state IN ('pending', 'sent', 'recorded', 'failed')", name=op.f("ck_github_report_state")),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_github_report_job_id_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_github_report")),
        sa.UniqueConstraint("job_id", "kind", "phase", name=op.f("uq_github_report_job_id_kind_phase")),
    )
    op.create_index(op.f("ix_github_report_job_id"), "github_report", ["job_id"], unique=False)
    op.create_index(op.f("ix_github_report_state"), "github_report", ["state"], unique=False)

    op.create_table(
        "verdict",
        sa.Column("job_id", BIG_KEY, nullable=False),
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("head_sha", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("summary", sa.String(), nullable=False),
        sa.Column("evidence", JSON_COLUMN, nullable=False),
        sa.Column("policy", JSON_COLUMN, nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint("verdict IN ('pass', 'fail', 'neutral', 'error')", name=op.f("ck_verdict_verdict")),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_verdict_job_id_job")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_verdict_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdict")),
        sa.UniqueConstraint("job_id", name=op.f("uq_verdict_job_id")),
    )
    op.create_index(op.f("ix_verdict_head_sha"), "verdict", ["head_sha"], unique=False)
    op.create_index("ix_verdict_project_decided", "verdict", ["project_id", "decided_at"], unique=False)

    op.create_table(
        "build",
        sa.Column("attempt_id", BIG_KEY, nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("log_tail", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_build_attempt_id_attempt")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_build")),
        sa.UniqueConstraint("attempt_id", "revision", name=op.f("uq_build_attempt_id_revision")),
    )
    op.create_index(op.f("ix_build_key"), "build", ["key"], unique=False)

    op.create_table(
        "log_chunk",
        sa.Column("attempt_id", BIG_KEY, nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_log_chunk_attempt_id_attempt")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_chunk")),
        sa.UniqueConstraint("attempt_id", "sequence", name=op.f("uq_log_chunk_attempt_id_sequence")),
    )
    op.create_table(
        "regression",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("series_id", BIG_KEY, nullable=False),
        sa.Column("commit_id", BIG_KEY, nullable=False),
        sa.Column("verdict_id", BIG_KEY, nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("limit", sa.Double(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("fixed_by_sha", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint("state IN ('new', 'acknowledged', 'ignored', 'fixed')", name=op.f("ck_regression_state")),
        sa.ForeignKeyConstraint(["commit_id"], ["commit.id"], name=op.f("fk_regression_commit_id_commit")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_regression_project_id_project")),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_regression_series_id_series")),
        sa.ForeignKeyConstraint(["verdict_id"], ["verdict.id"], name=op.f("fk_regression_verdict_id_verdict")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_regression")),
        sa.UniqueConstraint("series_id", "commit_id", name=op.f("uq_regression_series_id_commit_id")),
    )
    op.create_index(op.f("ix_regression_project_id"), "regression", ["project_id"], unique=False)
    op.create_index(op.f("ix_regression_state"), "regression", ["state"], unique=False)

    op.create_table(
        "report",
        sa.Column("job_id", BIG_KEY, nullable=False),
        sa.Column("attempt_id", BIG_KEY, nullable=False),
        sa.Column("fencing_token", sa.Integer(), nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("body", JSON_COLUMN, nullable=False),
        sa.Column("manifest_head", sa.String(), nullable=True),
        sa.Column("manifest_base", sa.String(), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_report_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_report_job_id_job")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_report")),
        sa.UniqueConstraint("attempt_id", name=op.f("uq_report_attempt_id")),
    )
    op.create_index(op.f("ix_report_job_id"), "report", ["job_id"], unique=False)
    op.create_index(
        "uq_report_accepted",
        "report",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("accepted"),
        sqlite_where=sa.text("accepted = 1"),
    )

    op.create_table(
        "sample",
        sa.Column("series_id", BIG_KEY, nullable=False),
        sa.Column("report_id", BIG_KEY, nullable=False),
        sa.Column("commit_id", BIG_KEY, nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["commit_id"], ["commit.id"], name=op.f("fk_sample_commit_id_commit")),
        sa.ForeignKeyConstraint(["report_id"], ["report.id"], name=op.f("fk_sample_report_id_report")),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_sample_series_id_series")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sample")),
        sa.UniqueConstraint("series_id", "report_id", "revision", name=op.f("uq_sample_series_id_report_id_revision")),
    )
    op.create_index(op.f("ix_sample_commit_id"), "sample", ["commit_id"], unique=False)
    op.create_index(op.f("ix_sample_report_id"), "sample", ["report_id"], unique=False)
    op.create_index("ix_sample_series_commit", "sample", ["series_id", "commit_id"], unique=False)


def downgrade() -> None:
    op.drop_table("sample")
    op.drop_table("report")
    op.drop_table("regression")
    op.drop_table("log_chunk")
    op.drop_table("build")
    op.drop_table("verdict")
    op.drop_table("github_report")
    op.drop_table("attempt")
    op.drop_table("job")
    op.drop_table("series")
    op.drop_table("pull_request")
    op.drop_table("commit")
    op.drop_table("worker")
    op.drop_table("webhook_delivery")
    op.drop_table("token")
    op.drop_table("project")
    op.drop_table("input_set")

"""Overrides, commands in comments, who approved a commit, and what GitHub is told about a pull request.

Revision ID: 0005
Revises: 0004
Created: 2026-11-30 05:45:00.000000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "override",
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("head_sha", sa.String(), nullable=False),
        sa.Column("limit_key", sa.String(), nullable=False),
        sa.Column("backend", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("source_url", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("source IN ('comment', 'api', 'page')", name=op.f("ck_override_source")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_override_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_override")),
        sa.UniqueConstraint(
            "project_id",
            "head_sha",
            "limit_key",
            "backend",
            name=op.f("uq_override_project_id_head_sha_limit_key_backend"),
        ),
    )
    op.create_table(
        "pull_request_comment",
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("github_id", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("html_url", sa.String(), nullable=True),
        sa.Column("lines", JSON_COLUMN, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("results", JSON_COLUMN, nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("commented_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('pending', 'done', 'refused', 'failed')", name=op.f("ck_pull_request_comment_state")
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_pull_request_comment_project_id_project")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pull_request_comment")),
        sa.UniqueConstraint("github_id", name=op.f("uq_pull_request_comment_github_id")),
    )
    op.create_index("ix_pull_request_comment_thread", "pull_request_comment", ["project_id", "number"])
    op.create_index(op.f("ix_pull_request_comment_state"), "pull_request_comment", ["state"])
    op.add_column("pull_request", sa.Column("author_association", sa.String(), nullable=True))
    op.add_column("job", sa.Column("approved_by", sa.String(), nullable=True))
    with op.batch_alter_table("github_report") as table:
        table.add_column(sa.Column("pull_request_id", BIG_KEY, nullable=True))
        table.add_column(sa.Column("comment_id", sa.BigInteger(), nullable=True))
        table.alter_column("job_id", existing_type=BIG_KEY, nullable=True)
        table.create_foreign_key(
            op.f("fk_github_report_pull_request_id_pull_request"), "pull_request", ["pull_request_id"], ["id"]
        )
        table.create_check_constraint(op.f("ck_github_report_subject"), "(job_id IS NULL) <> (pull_request_id IS NULL)")
        table.create_index(op.f("ix_github_report_pull_request_id"), ["pull_request_id"])


def downgrade() -> None:
    op.execute("DELETE FROM github_report WHERE job_id IS NULL")  # what the older schema cannot say
    with op.batch_alter_table("github_report") as table:
        table.drop_index(op.f("ix_github_report_pull_request_id"))
        table.drop_constraint(op.f("ck_github_report_subject"), type_="check")
        table.drop_constraint(op.f("fk_github_report_pull_request_id_pull_request"), type_="foreignkey")
        table.alter_column("job_id", existing_type=BIG_KEY, nullable=False)
        table.drop_column("comment_id")
        table.drop_column("pull_request_id")
    # No batches here: SQLite would make the table anew, and other tables' rows point into it.
    op.drop_column("job", "approved_by")
    op.drop_column("pull_request", "author_association")
    op.drop_table("pull_request_comment")
    op.drop_table("override")

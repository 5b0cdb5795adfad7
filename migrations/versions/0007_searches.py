"""Schedules and bisections; which job is claimed first, and how many pairs it measures.

Revision ID: 0007
Revises: 0006
Created: 2026-11-30 05:50:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
STATES = "state IN ('running', 'found', 'not_worse', 'failed', 'cancelled')"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "schedule",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("cron", sa.String(), nullable=False),
        sa.Column("next_run_at", MOMENT, nullable=False),
        sa.Column("last_run_at", MOMENT, nullable=True),
        sa.Column("last_outcome", sa.String(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_schedule_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule")),
        sa.UniqueConstraint("project_id", name=op.f("uq_schedule_project_id")),
    )
    op.create_index(op.f("ix_schedule_next_run_at"), "schedule", ["next_run_at"], unique=False)
    op.create_table(
        "bisection",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("backend", sa.String(), nullable=True),
        sa.Column("case", sa.String(), nullable=True),
        sa.Column("commits", JSON_COLUMN, nullable=False),
        sa.Column("threshold", sa.Double(), nullable=True),
        sa.Column("max_effort", sa.Integer(), nullable=False),
        sa.Column("findings", JSON_COLUMN, nullable=False),
        sa.Column("job_id", BIG_KEY, nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint(STATES, name=op.f("ck_bisection_state")),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_bisection_job_id_job")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_bisection_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bisection")),
    )
    for column in ("job_id", "project_id", "state"):
        op.create_index(op.f(f"ix_bisection_{column}"), "bisection", [column], unique=False)
    op.add_column("job", sa.Column("priority", sa.Integer(), server_default="0", nullable=False))
    op.add_column("job", sa.Column("effort", sa.Integer(), server_default="1", nullable=False))
    op.drop_index("ix_job_claim", "job")
    op.create_index("ix_job_claim", "job", ["hardware", "state", "priority", "id"])


def downgrade() -> None:
    op.drop_table("bisection")
    op.drop_table("schedule")
    # Not in a batch: SQLite would copy the table, and drop one that attempts refer to.
    op.drop_index("ix_job_claim", "job")
    op.create_index("ix_job_claim", "job", ["hardware", "state", "id"])
    op.drop_column("job", "effort")
    op.drop_column("job", "priority")

"""What tells late webhooks from new ones, jobs of drafts, and what is wrong in a manifest.

Revision ID: 0008
Revises: 0007
Created: 2026-11-30 05:50:00.000000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

STATES = ("awaiting_approval", "queued", "running", "deciding", "finished", "cancelled")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    with op.batch_alter_table("pull_request") as table:
        table.add_column(sa.Column("github_updated_at", sa.DateTime(timezone=True), nullable=True))
        table.add_column(sa.Column("previous_head_sha", sa.String(), nullable=True))
    with op.batch_alter_table("attempt") as table:
        problems = sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), "postgresql")
        table.add_column(sa.Column("manifest_problems", problems, nullable=True))
    _allow(("draft", *STATES))


def downgrade() -> None:
    op.execute("UPDATE job SET state = 'cancelled' WHERE state = 'draft'")
    _allow(STATES)
    with op.batch_alter_table("attempt") as table:
        table.drop_column("manifest_problems")
    with op.batch_alter_table("pull_request") as table:
        table.drop_column("previous_head_sha")
        table.drop_column("github_updated_at")


def _allow(states: tuple[str, ...]) -> None:
    with op.batch_alter_table("job") as table:
        table.drop_constraint(op.f("ck_job_state"), type_="check")
        table.create_check_constraint(op.f("ck_job_state"), f"state IN {states}")

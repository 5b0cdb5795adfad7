"""When a report to GitHub is tried again, and the check run it is about.

Revision ID: 0004
Revises: 0003
Created: 2026-11-30 04:02:40.310000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    with op.batch_alter_table("github_report") as table:
        table.add_column(sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True))
        table.add_column(sa.Column("check_run_id", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("github_report") as table:
        table.drop_column("check_run_id")
        table.drop_column("next_attempt_at")

"""Reports whose single values were removed for their age.

Revision ID: 0015
Revises: 0014
Created: 2026-11-30 10:52:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

WHOLE = sa.text("thinned_at IS NULL")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.add_column("report", sa.Column("thinned_at", sa.DateTime(timezone=True), nullable=True))
    with op.get_context().autocommit_block():
        op.drop_index("ix_report_whole", table_name="report", if_exists=True, postgresql_concurrently=True)
        op.create_index(
            "ix_report_whole",
            "report",
            ["received_at"],
            postgresql_where=WHOLE,
            sqlite_where=WHOLE,
            postgresql_concurrently=True,
        )


def downgrade() -> None:
    op.drop_index("ix_report_whole", table_name="report")
    op.drop_column("report", "thinned_at")

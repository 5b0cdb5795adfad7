"""Reports measured with the ruler alone and imported to be shown.

Revision ID: 0002
Revises: 0001
Created: 2026-11-30 02:26:54.842307
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "imported_report",
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("body", JSON_COLUMN, nullable=False),
        sa.Column("hardware", sa.String(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_imported_report")),
        sa.UniqueConstraint("content_hash", name=op.f("uq_imported_report_content_hash")),
    )


def downgrade() -> None:
    op.drop_table("imported_report")

"""Uploaded input sets.

Revision ID: 0003
Revises: 0002
Created: 2026-11-30 02:51:10.120000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "input_file",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("description", JSON_COLUMN, nullable=False),
        sa.Column("project_id", BIG_KEY, nullable=True),
        sa.Column("uploaded_by", sa.String(), nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_input_file_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_input_file")),
        sa.UniqueConstraint("content_hash", name=op.f("uq_input_file_content_hash")),
        sa.UniqueConstraint("name", name=op.f("uq_input_file_name")),
    )
    op.create_index(op.f("ix_input_file_project_id"), "input_file", ["project_id"], unique=False)


def downgrade() -> None:
    op.drop_table("input_file")

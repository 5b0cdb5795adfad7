"""Training runs that differ in the attention backend, as far as they were reported.

Revision ID: 0010
Revises: 0009
Created: 2026-11-30 09:25:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "training",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("setup", JSON_COLUMN, nullable=False),
        sa.Column("ruler", JSON_COLUMN, nullable=True),
        sa.Column("environment", JSON_COLUMN, nullable=True),
        sa.Column("hardware", sa.String(), nullable=True),
        sa.Column("repro", sa.String(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_by", sa.String(), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_training")),
        sa.UniqueConstraint("name", name=op.f("uq_training_name")),
    )
    op.create_table(
        "training_run",
        sa.Column("training_id", BIG_KEY, nullable=False),
        sa.Column("backend", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("facts", JSON_COLUMN, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(["training_id"], ["training.id"], name=op.f("fk_training_run_training_id_training")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_training_run")),
        sa.UniqueConstraint("training_id", "backend", "seed", name=op.f("uq_training_run_training_id_backend_seed")),
    )


def downgrade() -> None:
    op.drop_table("training_run")
    op.drop_table("training")

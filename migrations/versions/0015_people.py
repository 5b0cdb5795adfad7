"""People who sign in with GitHub, and sessions that were ended before their time.

Revision ID: 0015
Revises: 0014
Created: 2026-11-30 09:52:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "person",
        sa.Column("github_id", sa.BigInteger(), nullable=False),
        sa.Column("login", sa.String(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("signed_in_at", MOMENT, nullable=False),
        sa.Column("blocked_at", MOMENT, nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_person")),
        sa.UniqueConstraint("github_id", name=op.f("uq_person_github_id")),
    )
    op.create_table(
        "ended_session",
        sa.Column("mark", sa.String(), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ended_session")),
        sa.UniqueConstraint("mark", name=op.f("uq_ended_session_mark")),
    )
    op.create_index(op.f("ix_ended_session_expires_at"), "ended_session", ["expires_at"])


def downgrade() -> None:
    op.drop_table("ended_session")
    op.drop_table("person")

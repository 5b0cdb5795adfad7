"""The audit log, and tokens that may less than everything: read, write, admin.

Revision ID: 0014
Revises: 0013
Created: 2026-11-30 09:50:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "audit_event",
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("actor_kind", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("detail", JSON_COLUMN, nullable=False),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_event")),
    )
    op.create_index(op.f("ix_audit_event_at"), "audit_event", ["at"])
    for column in ("actor", "action", "project"):
        op.create_index(f"ix_audit_event_{column}", "audit_event", [column, "id"])
    _allow(("worker", "read", "write", "admin"))
    op.execute("UPDATE token SET scope = 'admin' WHERE scope = 'write'")  # what such a token could do it still can


def downgrade() -> None:
    op.execute("DELETE FROM token WHERE scope IN ('read', 'write')")  # under the older rules they would do everything
    op.execute("UPDATE token SET scope = 'write' WHERE scope = 'admin'")
    _allow(("worker", "write"))
    op.drop_table("audit_event")


def _allow(scopes: tuple[str, ...]) -> None:
    if op.get_bind().dialect.name == "postgresql":  # checked without keeping writers out
        op.execute("ALTER TABLE token DROP CONSTRAINT ck_token_scope")
        op.execute(f"ALTER TABLE token ADD CONSTRAINT ck_token_scope CHECK (scope IN {scopes}) NOT VALID")
        op.execute("ALTER TABLE token VALIDATE CONSTRAINT ck_token_scope")
        return
    with op.batch_alter_table("token") as table:
        table.drop_constraint(op.f("ck_token_scope"), type_="check")
        table.create_check_constraint(op.f("ck_token_scope"), f"scope IN {scopes}")

"""Workers that are drained, attempts that are handed back, reports taken over from equal builds, turns of projects.

Revision ID: 0011
Revises: 0010
Created: 2026-11-30 09:30:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

STATES = ("running", "reported", "failed", "lost", "cancelled")
INDEXES = {
    "ix_job_claim": ("job", ["hardware", "state", "priority", "project_id", "id"]),
    "ix_job_turn": ("job", ["hardware", "project_id", "started_at"]),
    "ix_report_fingerprint": ("report", ["fingerprint"]),
}


def upgrade() -> None:
    """What comes before the indexes is committed with the first of them, so all of it may be run again."""
    _limit_locks("5s")  # rather fail than block a running service
    again = {"if_not_exists": op.get_bind().dialect.name == "postgresql"}
    op.add_column("worker", sa.Column("draining_at", sa.DateTime(timezone=True), nullable=True), **again)
    op.add_column("report", sa.Column("fingerprint", sa.String(), nullable=True), **again)
    big = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    if op.get_bind().dialect.name == "postgresql":
        op.add_column("report", sa.Column("taken_from_id", big, nullable=True), **again)
        op.execute("ALTER TABLE report DROP CONSTRAINT IF EXISTS fk_report_taken_from_id_report")
        op.execute(
            "ALTER TABLE report ADD CONSTRAINT fk_report_taken_from_id_report "
            "FOREIGN KEY (taken_from_id) REFERENCES report (id) NOT VALID"
        )
    else:
        with op.batch_alter_table("report") as table:
            table.add_column(sa.Column("taken_from_id", big, nullable=True))
            table.create_foreign_key(op.f("fk_report_taken_from_id_report"), "report", ["taken_from_id"], ["id"])
    _allow((*STATES, "returned"))
    with op.get_context().autocommit_block():
        _limit_locks("10min")  # these wait without holding anybody up
        if op.get_bind().dialect.name == "postgresql":
            op.execute("ALTER TABLE report VALIDATE CONSTRAINT fk_report_taken_from_id_report")
            op.execute("ALTER TABLE attempt VALIDATE CONSTRAINT ck_attempt_state")
        for name, (table_name, columns) in INDEXES.items():
            _make(name, table_name, columns)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        for name, (table_name, _) in INDEXES.items():
            op.drop_index(name, table_name=table_name, if_exists=True, postgresql_concurrently=True)
        _make("ix_job_claim", "job", ["hardware", "state", "priority", "id"])
    op.execute("UPDATE attempt SET state = 'lost' WHERE state = 'returned'")
    _allow(STATES)
    with op.batch_alter_table("report") as table:
        table.drop_constraint(op.f("fk_report_taken_from_id_report"), type_="foreignkey")
        table.drop_column("taken_from_id")
        table.drop_column("fingerprint")
    with op.batch_alter_table("worker") as table:
        table.drop_column("draining_at")


def _limit_locks(longest: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"SET lock_timeout = '{longest}'")


def _make(name: str, table: str, columns: list[str]) -> None:
    op.drop_index(name, table_name=table, if_exists=True, postgresql_concurrently=True)
    op.create_index(name, table, columns, postgresql_concurrently=True)


def _allow(states: tuple[str, ...]) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE attempt DROP CONSTRAINT IF EXISTS ck_attempt_state")
        op.execute(f"ALTER TABLE attempt ADD CONSTRAINT ck_attempt_state CHECK (state IN {states}) NOT VALID")
        return
    with op.batch_alter_table("attempt") as table:
        table.drop_constraint(op.f("ck_attempt_state"), type_="check")
        table.create_check_constraint(op.f("ck_attempt_state"), f"state IN {states}")

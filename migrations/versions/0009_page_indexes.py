"""Indexes that the pages read lists and curves from.

Revision ID: 0009
Revises: 0008
Created: 2026-11-30 07:05:00
"""

from __future__ import annotations

from typing import Any

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

ADDED: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "ix_sample_curve": (
        "sample",
        ["series_id", "report_id"],
        {"postgresql_include": ["commit_id", "revision", "value", "low", "high"]},
    ),
    "ix_job_project_merge_base": ("job", ["project_id", "merge_base_sha"], {}),
    "ix_job_project_ref": ("job", ["project_id", "ref", "id"], {}),
    "ix_verdict_verdict_job": ("verdict", ["verdict", "job_id"], {}),
}
REMOVED: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "ix_sample_series_commit": ("sample", ["series_id", "commit_id"], {}),
}


def upgrade() -> None:
    _exchange(REMOVED, ADDED)


def downgrade() -> None:
    _exchange(ADDED, REMOVED)


def _exchange(
    old: dict[str, tuple[str, list[str], dict[str, Any]]], new: dict[str, tuple[str, list[str], dict[str, Any]]]
) -> None:
    """On PostgreSQL concurrently, hence outside of a transaction: a running service goes on reading and writing. What
    an interrupted run left behind is made anew."""
    with op.get_context().autocommit_block():
        for name, (table, columns, options) in new.items():
            op.drop_index(name, table_name=table, if_exists=True, postgresql_concurrently=True)
            op.create_index(name, table, columns, postgresql_concurrently=True, **options)
        for name, (table, _, _) in old.items():
            op.drop_index(name, table_name=table, if_exists=True, postgresql_concurrently=True)

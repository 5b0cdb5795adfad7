"""What pages read instead of computing it: steps of the series, and of each verdict what failed.

Revision ID: 0012
Revises: 0011
Created: 2026-11-30 09:35:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_FAILED = {
    "postgresql": (
        "UPDATE verdict SET failed = coalesce((SELECT jsonb_agg(jsonb_build_array(coalesce(row ->> 'backend', ''), "
        "coalesce(row ->> 'case', ''), row ->> 'limit_key')) FROM jsonb_array_elements(evidence) AS row "
        "WHERE row ->> 'verdict' = 'fail'), '[]')"
    ),
    "sqlite": (
        "UPDATE verdict SET failed = (SELECT json_group_array(json_array("
        "coalesce(json_extract(value, '$.backend'), ''), coalesce(json_extract(value, '$.case'), ''), "
        "json_extract(value, '$.limit_key'))) FROM json_each(evidence) WHERE json_extract(value, '$.verdict') = 'fail')"
    ),
}


def upgrade() -> None:
    """Steps come with the next result of each default branch."""
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    op.create_table(
        "series_step",
        sa.Column("series_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("commit_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("change", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_series_step_series_id_series")),
        sa.ForeignKeyConstraint(["commit_id"], ["commit.id"], name=op.f("fk_series_step_commit_id_commit")),
        sa.PrimaryKeyConstraint("series_id", "commit_id", name=op.f("pk_series_step")),
    )
    with op.batch_alter_table("verdict") as table:
        failed = sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), "postgresql")
        table.add_column(sa.Column("failed", failed, nullable=False, server_default="[]"))
    op.execute(_FAILED[dialect])


def downgrade() -> None:
    with op.batch_alter_table("verdict") as table:
        table.drop_column("failed")
    op.drop_table("series_step")

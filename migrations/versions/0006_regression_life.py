"""Regressions with their series and history; channels and their outbox.

Revision ID: 0006
Revises: 0005
Created: 2026-11-30 05:55:00
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

JSON_COLUMN = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
STATES = "state IN ('new', 'acknowledged', 'ignored', 'fixed', 'reopened')"
OLD_STATES = "state IN ('new', 'acknowledged', 'ignored', 'fixed')"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL lock_timeout = '5s'")  # rather fail than block a running service
    # SQLite makes the table anew, which nothing may refer to meanwhile: what its series get waits in a table apart.
    op.execute("CREATE TABLE regression_before AS SELECT * FROM regression")
    _regressions_keep_their_cause()
    _create_regression_series()
    _create_regression_event()
    _carry_over()
    op.drop_table("regression_before")
    _create_notifications()


def _create_regression_series() -> None:
    op.create_table(
        "regression_series",
        sa.Column("regression_id", BIG_KEY, nullable=False),
        sa.Column("series_id", BIG_KEY, nullable=False),
        sa.Column("last_good_id", BIG_KEY, nullable=True),
        sa.Column("first_bad_id", BIG_KEY, nullable=False),
        sa.Column("before", sa.Double(), nullable=True),
        sa.Column("after", sa.Double(), nullable=False),
        sa.Column("noise", sa.Double(), nullable=True),
        sa.Column("limit", sa.Double(), nullable=True),
        sa.Column("recovered_by_sha", sa.String(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.ForeignKeyConstraint(
            ["regression_id"], ["regression.id"], name=op.f("fk_regression_series_regression_id_regression")
        ),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_regression_series_series_id_series")),
        sa.ForeignKeyConstraint(["last_good_id"], ["commit.id"], name=op.f("fk_regression_series_last_good_id_commit")),
        sa.ForeignKeyConstraint(["first_bad_id"], ["commit.id"], name=op.f("fk_regression_series_first_bad_id_commit")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_regression_series")),
        sa.UniqueConstraint("series_id", "first_bad_id", name=op.f("uq_regression_series_series_id_first_bad_id")),
    )
    op.create_index(op.f("ix_regression_series_regression_id"), "regression_series", ["regression_id"])


def _create_regression_event() -> None:
    op.create_table(
        "regression_event",
        sa.Column("regression_id", BIG_KEY, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("before", sa.String(), nullable=True),
        sa.Column("after", sa.String(), nullable=True),
        sa.Column("text", sa.String(), nullable=True),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint(
            "kind IN ('opened', 'series', 'range', 'state', 'owner', 'comment')",
            name=op.f("ck_regression_event_kind"),
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"], ["regression.id"], name=op.f("fk_regression_event_regression_id_regression")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_regression_event")),
    )
    op.create_index(op.f("ix_regression_event_regression_id"), "regression_event", ["regression_id"])


def _regressions_keep_their_cause() -> None:
    """What was one row for each series and commit becomes a regression, which has one series."""
    with op.batch_alter_table("regression") as table:
        table.add_column(sa.Column("last_good_id", BIG_KEY, nullable=True))
        table.add_column(sa.Column("first_bad_id", BIG_KEY, nullable=True))
        table.add_column(sa.Column("job_id", BIG_KEY, nullable=True))
        table.add_column(sa.Column("owner", sa.String(), nullable=True))
    op.execute(
        "UPDATE regression SET first_bad_id = commit_id, "
        "job_id = (SELECT verdict.job_id FROM verdict WHERE verdict.id = regression.verdict_id)"
    )
    with op.batch_alter_table("regression") as table:
        table.drop_constraint("uq_regression_series_id_commit_id", type_="unique")
        table.drop_constraint("fk_regression_commit_id_commit", type_="foreignkey")
        table.drop_constraint("fk_regression_series_id_series", type_="foreignkey")
        table.drop_constraint("fk_regression_verdict_id_verdict", type_="foreignkey")
        table.drop_constraint(op.f("ck_regression_state"), type_="check")
        for column in ("series_id", "commit_id", "verdict_id", "value", "limit"):
            table.drop_column(column)
        table.alter_column("first_bad_id", existing_type=BIG_KEY, nullable=False)
        table.create_check_constraint(op.f("ck_regression_state"), STATES)
        table.create_foreign_key(op.f("fk_regression_last_good_id_commit"), "commit", ["last_good_id"], ["id"])
        table.create_foreign_key(op.f("fk_regression_first_bad_id_commit"), "commit", ["first_bad_id"], ["id"])
        table.create_foreign_key(op.f("fk_regression_job_id_job"), "job", ["job_id"], ["id"])


def _carry_over() -> None:
    op.execute(
        'INSERT INTO regression_series (regression_id, series_id, first_bad_id, after, "limit", recovered_by_sha, '
        'created_at) SELECT id, series_id, commit_id, value, "limit", fixed_by_sha, created_at FROM regression_before'
    )
    op.execute(
        "INSERT INTO regression_event (regression_id, kind, after, text, author, created_at) "
        "SELECT id, 'opened', state, reason, 'gprojci', created_at FROM regression_before"
    )


def _create_notifications() -> None:
    op.create_table(
        "notification_channel",
        sa.Column("project_id", BIG_KEY, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("minimum_severity", sa.String(), nullable=False),
        sa.Column("events", JSON_COLUMN, nullable=True),
        sa.Column("disabled_reason", sa.String(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint("kind IN ('webhook', 'slack')", name=op.f("ck_notification_channel_kind")),
        sa.CheckConstraint(
            "minimum_severity IN ('info', 'warning', 'critical')",
            name=op.f("ck_notification_channel_minimum_severity"),
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_notification_channel_project_id_project")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification_channel")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_notification_channel_project_id_name")),
    )
    op.create_table(
        "notification",
        sa.Column("channel_id", BIG_KEY, nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("body", JSON_COLUMN, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", MOMENT, nullable=True),
        sa.Column("detail", sa.String(), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("sent_at", MOMENT, nullable=True),
        sa.Column("id", BIG_KEY, autoincrement=True, nullable=False),
        sa.CheckConstraint("state IN ('pending', 'sent', 'failed')", name=op.f("ck_notification_state")),
        sa.ForeignKeyConstraint(
            ["channel_id"],
            ["notification_channel.id"],
            name=op.f("fk_notification_channel_id_notification_channel"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification")),
        sa.UniqueConstraint("message_id", name=op.f("uq_notification_message_id")),
    )
    op.create_index(op.f("ix_notification_channel_id"), "notification", ["channel_id"])
    op.create_index(op.f("ix_notification_state"), "notification", ["state"])


def downgrade() -> None:
    """The older schema has one series for each regression, with a verdict: what does not fit it is lost."""
    op.drop_table("notification")
    op.drop_table("notification_channel")
    op.drop_table("regression_event")
    op.drop_table("regression_series")
    op.execute("DELETE FROM regression")
    with op.batch_alter_table("regression") as table:
        table.drop_constraint("fk_regression_job_id_job", type_="foreignkey")
        table.drop_constraint("fk_regression_first_bad_id_commit", type_="foreignkey")
        table.drop_constraint("fk_regression_last_good_id_commit", type_="foreignkey")
        table.drop_constraint(op.f("ck_regression_state"), type_="check")
        for column in ("owner", "job_id", "first_bad_id", "last_good_id"):
            table.drop_column(column)
        table.add_column(sa.Column("series_id", BIG_KEY, nullable=False))
        table.add_column(sa.Column("commit_id", BIG_KEY, nullable=False))
        table.add_column(sa.Column("verdict_id", BIG_KEY, nullable=False))
        table.add_column(sa.Column("value", sa.Double(), nullable=False))
        table.add_column(sa.Column("limit", sa.Double(), nullable=False))
        table.create_check_constraint(op.f("ck_regression_state"), OLD_STATES)
        table.create_foreign_key(op.f("fk_regression_series_id_series"), "series", ["series_id"], ["id"])
        table.create_foreign_key(op.f("fk_regression_commit_id_commit"), "commit", ["commit_id"], ["id"])
        table.create_foreign_key(op.f("fk_regression_verdict_id_verdict"), "verdict", ["verdict_id"], ["id"])
        table.create_unique_constraint(op.f("uq_regression_series_id_commit_id"), ["series_id", "commit_id"])

"""The migrations make exactly the tables of the models, on both kinds of database, and can be undone."""

from __future__ import annotations

import os

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from gprojci_service.context import Context
from gprojci_service.models import Base
from gprojci_service.settings import migrations_directory


def test_migrations_and_models_agree(settings):
    context = Context.open(settings)
    with context.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []


def test_migrating_twice_changes_nothing_and_down_removes_everything(settings):
    context = Context.open(settings)
    context.database.migrate()
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()))
    with context.database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()
    assert set(inspect(context.database.engine).get_table_names()) <= {"alembic_version"}


def test_alembic_alone_takes_the_address_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "GPROJCI_DATABASE_URL", f"sqlite:///{tmp_path / 'x.sqlite'}")
    command.upgrade(Config(str(migrations_directory() / "alembic.ini")), "head")
    assert (tmp_path / "x.sqlite").stat().st_size > 0

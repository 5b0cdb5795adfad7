"""Task: look at the curves of a project's default branch."""

from __future__ import annotations

from gprojci_service.context import Context
from gprojci_service.regressions import kept_steps
from gprojci_service.regressions import watch as watching


def watch(context: Context, project_id: int) -> None:
    """Opens, moves and closes its regressions, and keeps all steps. Each look sees the whole curves, so the next makes
    good a lost one."""
    with context.database.session(writes=True) as session:
        watching.look(session, project_id)
    kept_steps.keep(context.database, project_id)

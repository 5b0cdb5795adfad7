"""Task: carry out the commands of one comment."""

from __future__ import annotations

from gprojci_service.comments import execution, service
from gprojci_service.context import Context
from gprojci_service.github.rest import Failure
from gprojci_service.models import Project


def carry_out_comment(context: Context, row_id: int) -> None:
    """Asks GitHub outside of any transaction, then does what the comment says, once."""
    with context.database.session(writes=False) as session:
        comment = service.turn_of(session, row_id)
        if comment is None:
            return
        project = session.get_one(Project, comment.project_id)
    try:
        asked = execution.ask(context.github, project.name, comment)
    except Failure as failure:
        with context.database.session(writes=True) as session:
            final = service.put_off(session, row_id, failure.answer)
            if final is not None:
                execution.react(session, final)
        return
    with context.database.session(writes=True) as session:
        execution.carry_out(session, context.settings, row_id, asked)

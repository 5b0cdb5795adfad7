"""Comments on pull requests as commands: taken once, carried out in order, answered."""

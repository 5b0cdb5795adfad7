"""The ruler of GProj CI; importing it loads neither torch nor numpy."""

__version__ = "0.1.0"

"""The charts of GProj CI: plotly figures built from plain data, with no database and no web framework."""

__version__ = "0.1.0"

"""The one place where GitHub is spoken to."""

"""Bisections: which commit of a range made a metric worse."""

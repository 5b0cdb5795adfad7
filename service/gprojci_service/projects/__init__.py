"""Repositories under test, their commits and pull requests."""

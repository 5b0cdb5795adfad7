"""Schedules: the head of a default branch, measured anew at set times."""

"""Worsenings in a series and their triage."""

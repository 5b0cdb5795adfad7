"""Tokens and who may do what."""

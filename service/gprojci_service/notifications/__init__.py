"""Channels that asked to be told, and what they are told."""

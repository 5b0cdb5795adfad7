"""Input sets that reports used."""

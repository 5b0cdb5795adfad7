"""Bundled captures of real training runs (package data): see each file's safetensors metadata for its provenance."""

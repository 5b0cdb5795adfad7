"""Bundled captures of real training runs, read by `contract/bundled.py`: each file's metadata says its provenance."""

"""Reports measured elsewhere, with `gprojci-suite bench --json`, and imported to be shown."""

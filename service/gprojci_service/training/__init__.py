"""Training runs, reported by `gprojci-suite train` while they go on."""

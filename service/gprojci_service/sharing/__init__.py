"""What other pages show of a project: badges, charts as pictures and frames, a feed of verdicts."""

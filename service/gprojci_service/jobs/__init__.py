"""Jobs and their attempts: made, superseded, claimed, kept alive, recovered."""

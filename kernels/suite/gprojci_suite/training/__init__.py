"""The training suite: small transformers trained from scratch that differ in the attention backend alone."""

"""The gate: policy, decision, evidence."""

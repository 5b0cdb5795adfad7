"""GitHub's webhooks: checked, stored once, processed as a task."""

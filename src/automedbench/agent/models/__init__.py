"""Models: what answers a run's conversation."""

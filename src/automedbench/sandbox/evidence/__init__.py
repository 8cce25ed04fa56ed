"""Evidence: what a run's code did, and the verdict on it."""

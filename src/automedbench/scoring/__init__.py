"""Scoring: the numbers of a run from its records, and the codes that say why it fell short."""

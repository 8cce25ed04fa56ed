"""Airlock: what is taken out of a workspace."""

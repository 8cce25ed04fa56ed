"""Durable runs: journal, attempts, lease."""

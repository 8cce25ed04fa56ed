"""Rehearsal: what stands in for the world, made-up data sets and a scripted model server."""

"""Sandbox: where agent code runs, what it can reach, what is taken from it, and the evidence it leaves."""

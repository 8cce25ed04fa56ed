"""Tries of `first-run`: the smallest real thing of each kind that a campaign depends on."""

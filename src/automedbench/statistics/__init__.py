"""Statistics of differences between agents: intervals, comparisons, ranks and agreement (docs/statistics.md).

Plain numbers in, frozen records out. Imports nothing of the project outside of this package.
"""

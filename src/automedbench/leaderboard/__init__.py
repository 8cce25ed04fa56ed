"""The leaderboard: scores of a campaign as tables, as a ranking on the console, and as pages (``build``).

Nothing is imported here: planning a workflow reads names of tables (``columns``) and the plan, thousands of times.
"""

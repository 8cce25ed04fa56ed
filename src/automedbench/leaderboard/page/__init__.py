"""Pages of the leaderboard: the board and one page per run, each a file that opens from disk."""

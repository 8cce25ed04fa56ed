"""Tables of the leaderboard: rows from scores, and the files that hold them."""

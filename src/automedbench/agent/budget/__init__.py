"""Budget: limits, prices and what a campaign has spent."""

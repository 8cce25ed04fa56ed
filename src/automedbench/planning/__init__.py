"""Planning: what the Snakefile asks of a campaign."""

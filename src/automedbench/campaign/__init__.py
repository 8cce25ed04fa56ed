"""Campaign: configuration, agents and judges as typed settings."""

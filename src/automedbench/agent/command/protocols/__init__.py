"""What programs speak to the bridge: one module for each protocol, and what all have in common."""

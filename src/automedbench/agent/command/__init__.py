"""Command agents: a program in the container, its model behind a bridge."""

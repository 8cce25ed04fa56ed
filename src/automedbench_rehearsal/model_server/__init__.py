"""Model server: chat completions on loopback, scripted, with faults on demand."""

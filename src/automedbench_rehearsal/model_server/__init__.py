"""Model server: four protocols on loopback, scripted, with faults on demand."""

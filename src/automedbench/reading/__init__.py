"""Reading: what an agent wrote, as text: Python, Bash, prose."""

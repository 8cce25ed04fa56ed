"""Container: starting agent code and our own roles, and ending them."""

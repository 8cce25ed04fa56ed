"""Base: errors, cards, records, files and endpoints that every part uses."""

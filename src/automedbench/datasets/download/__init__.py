"""Download: raw data from hosts and from people's own folders, whole or not at all."""

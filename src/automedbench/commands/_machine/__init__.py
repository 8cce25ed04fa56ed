"""One reader of this machine and its cluster; `doctor` reports what it finds, `site` writes a profile from it."""

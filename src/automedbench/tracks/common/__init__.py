"""Common: what several tracks do alike with cases, pictures and planes of volumes."""

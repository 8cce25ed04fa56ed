"""Tables for papers: LaTeX and Markdown."""

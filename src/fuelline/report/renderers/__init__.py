"""One document tree, many renderers: a terminal, Markdown, pictures."""

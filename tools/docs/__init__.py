"""The documentation as a site: the same Markdown files that are read in the repository."""

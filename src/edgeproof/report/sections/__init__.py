"""Sections of the report, one per file: each is a function from a page to a section, or to None if it has no content."""

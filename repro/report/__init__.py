"""Turns run folders into summaries, verdicts, tables, the pages of docs/ and one HTML page, without torch."""

"""Defines what a user may set: keys, their ranges, the groups under conf/, and overrides that give configurations."""

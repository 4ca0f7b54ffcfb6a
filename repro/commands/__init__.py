"""Defines the commands of `repro`, one file each; see repro/cli.py for what a file holds."""

"""One file per command of `repro`; see repro/cli.py for what a file holds."""

"""The committed results, read once a process: that takes a quarter of a second, and a hundred tests look at them.

No test may change what it gets here (odd_results.py copies it first).
"""

import functools

from repro.report import summaries
from repro.report.summaries import Results


@functools.cache
def load() -> Results:
    return summaries.load()

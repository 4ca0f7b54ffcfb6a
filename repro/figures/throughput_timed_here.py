"""Lists iterations whose compute was timed on this machine's processor: an appendix, as nearly all of it is compute."""

from repro.figures import lab_iterations
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Iterations timed on one machine, with modelled links"
COMMAND = "repro run experiment=throughput"


def table(results: Results) -> list[Row]:
    return lab_iterations.compared(results, "throughput")

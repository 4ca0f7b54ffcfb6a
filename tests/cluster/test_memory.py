import subprocess
import sys

STEPS = """
import resource, threading
import torch
from repro.cluster import memory

def steps(count):
    for _ in range(count):  # as forward keeps activations, and backward frees them
        kept = [torch.ones(1 << 18) for _ in range(60)]
        del kept

def measure():
    steps(5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    steps(20)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)

torch.set_num_threads(1)
memory.keep_freed()
rank = threading.Thread(target=measure)
rank.start()
rank.join()
"""


def test_pages_of_a_step_serve_the_next():
    """Of 15,360 pages a step, the kernel would hand out and clear hundreds anew each time."""
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50

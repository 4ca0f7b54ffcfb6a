"""Fixtures that several parts share."""

import fcntl
import functools
import gc
import importlib
import itertools
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from unittest import mock

import chromium_page
import committed_results
import pytest

from repro.report import summaries

CACHE = Path(__file__).parent.parent / ".pytest_cache"
SAID = CACHE / f"ranks-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.log"  # by this worker's ranks that are processes
SHOWN = 4000  # characters of it, where a test fails

# Where Python may not write bytecode, as in many containers, some 60 processes would each compile torch anew, for 3 s.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False


# The long ones, so that nothing waits for them at the end.
FIRST = (
    "test_slurm_cluster", "test_checkpoint", "test_failing_disk", "test_distributed", "test_cli", "test_ctrl_c",
    "test_watchdog", "test_limits", "test_loop", "test_stopping", "test_same_data", "test_dilation", "test_html",
    "test_docs", "test_lab", "test_buckets", "test_algorithms",
)  # fmt: skip
SLOW = ("torch", "repro.compression.sparse_kernels", "matplotlib.figure")  # to import for the first time


def pytest_collection(session: pytest.Session) -> None:
    if session.config.pluginmanager.hasplugin("dsession"):
        return  # it only tells pytest-xdist's workers what to do
    CACHE.mkdir(exist_ok=True)
    gc.disable()  # see sweep.py
    # One worker compiles bytecode and kernels for all, another meanwhile something else.
    taken = [name for name in SLOW if not _imported(name, fcntl.LOCK_EX | fcntl.LOCK_NB)]
    for name in (*taken, "repro.train.loop"):
        _imported(name, fcntl.LOCK_EX)
    for name in ("codec_kernels", "pair_kernels"):
        _imported(f"repro.compression.{name}", fcntl.LOCK_EX | fcntl.LOCK_NB)
    import torch
    import typer.main
    from hypothesis import settings

    from repro import cli
    from repro.timing import before_run, one_rank  # noqa: F401  (which the server of forks imports too)

    with suppress(ImportError):  # as each of a lab's ranks would
        import pyroute2  # noqa: F401
    typer.main.get_command = functools.cache(typer.main.get_command)  # the commands, which hold no state
    typer.main.get_command(cli.app)
    os.fsync = lambda _: None  # what these workers write need not survive a power cut
    one_rank.REPEATS = 1  # of the steps timed before a run: what they take is nobody's concern here
    gc.freeze()
    gc.enable()
    _fork_the_fork_server()
    torch.set_num_threads(1)  # tests of several ranks would otherwise wait for each other's threads
    # The same examples at every run, so that a failure is always somebody's change. REPRO_EXPLORE=1 draws new ones.
    settings.register_profile("repeatable", derandomize=True, deadline=None)
    if not os.environ.get("REPRO_EXPLORE"):
        settings.load_profile("repeatable")


def _imported(name: str, lock: int) -> bool:
    """Import a module, with no other worker at it; False where one is, and `lock` does not wait."""
    with (CACHE / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, lock)
        except BlockingIOError:
            return False
        importlib.import_module(name)
    return True


def _fork_the_fork_server() -> None:
    """The server that ranks are forked from, as a fork of this worker, which has imported what that one would, for 5 s.

    It has run nothing yet, as little as a new server has. Launchers that are processes of their own start a new one.
    What ranks say goes to a file: pytest captures it for the worker alone, and they would write on the terminal.
    """

    def fork(_: object, arguments: list[str], kept: list[int]) -> int:
        child = os.fork()
        if child == 0:
            try:
                said = os.open(SAID, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
                for descriptor in (1, 2):
                    os.dup2(said, descriptor)
                for low, high in itertools.pairwise([2, *sorted(kept), util.MAXFD]):
                    if low + 1 < high:  # of an empty range Python may close all (util.close_all_fds_except too)
                        os.closerange(low + 1, high)
                exec(arguments[-1])
            finally:
                os._exit(0)
        return child

    resource_tracker.ensure_running()
    with mock.patch.object(util, "spawnv_passfds", fork):
        forkserver.ensure_running()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Where pytest-xdist is there, four files at a time, as some tests wait; `-n 0` goes back to one process."""
    worker = hasattr(config, "workerinput")  # a worker that started workers would never end
    if config.pluginmanager.hasplugin("xdist") and not worker and config.option.numprocesses is None:
        config.option.numprocesses, config.option.dist = 4, "loadfile"
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(FIRST)))


@pytest.fixture(scope="module", autouse=True)
def nothing_stays_connected() -> Iterator[None]:
    import thread_ranks

    yield
    thread_ranks.disconnect()


@pytest.fixture(scope="session", autouse=True)
def committed_results_stay() -> Iterator[None]:
    """One that changed what all tests of a process share would fail others, by their order."""
    yield
    if committed_results.load.cache_info().currsize:
        assert committed_results.load().summaries == summaries.load().summaries, "a test changed the committed results"


@pytest.fixture(scope="session")
def imagenet_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data.root with JPEGs in ImageNet's layout: 4 classes, 32 + 16 images, many sizes and colour modes."""
    import numpy as np
    from PIL import Image

    root = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 4)):
        for label in range(4):
            folder = root / "imagenet" / split / f"n0000000{label}"
            folder.mkdir(parents=True)
            for i in range(count):
                height, width = generator.integers(60, 140, 2)
                pixels = generator.integers(0, 80, (height, width, 3)).astype(np.uint8)
                pixels[..., label % 3] += 40 * (label + 1)
                mode = ("RGB", "L", "CMYK")[i % 3]
                image = Image.fromarray(pixels).convert(mode)
                image.save(folder / f"{folder.name}_{i}.JPEG", format="PNG" if i == 3 and mode == "RGB" else "JPEG")
    return root


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium_page.Page]:
    """A browser, which takes longer to start than a page to open."""
    with chromium_page.chromium(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds what ranks said to a failure. Where REPRO_REQUIRE is set (.ci/run), only tests of a GPU may be skipped."""
    report = yield
    if report.failed and SAID.exists() and (said := SAID.read_text(errors="replace")):
        report.sections.append((f"end of {SAID}", said[-SHOWN:]))
    if report.skipped and item.get_closest_marker("gpu") is None and os.environ.get("REPRO_REQUIRE"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} must run here, and was skipped: {report.longrepr}"
    return report


@pytest.fixture
def alone() -> Iterator[None]:
    """One rank of torch.distributed, in this process."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()

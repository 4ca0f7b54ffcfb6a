"""A file is whole or not there, whoever else writes it at the same time."""

import subprocess
import sys
from pathlib import Path

from repro.whole_files import write_whole

WRITES = """
import sys
from pathlib import Path
from repro.whole_files import write_whole
for _ in range(300):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 5000)
"""


def test_two_writers_of_one_file_leave_it_whole(tmp_path: Path) -> None:
    """Both used one name for what was not done, so that one moved the other's away."""
    file = tmp_path / "summary.json"
    write_whole(file, "")
    words = [sys.executable, "-c", WRITES, str(file)]
    writers = [subprocess.Popen([*words, letter], stderr=subprocess.PIPE) for letter in "ab"]
    while any(writer.poll() is None for writer in writers):
        assert file.read_text() in ("", 5000 * "a", 5000 * "b")
    assert [writer.communicate()[1] for writer in writers] == [b"", b""]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]

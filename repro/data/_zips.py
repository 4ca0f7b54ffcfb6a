"""Says what zip files and folders of others may hold beside what is wanted, and what a damaged one raises."""

import lzma
import zipfile
import zlib
from pathlib import PurePath

# By how its entries are packed; NotImplementedError and UnicodeDecodeError where the index is damaged.
BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, UnicodeDecodeError, EOFError)


def is_hidden(path: PurePath) -> bool:
    """Returns whether a relative path is of a hidden file, as ._X is, which macOS puts beside each X that it packs."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)

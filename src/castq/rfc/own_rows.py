"""Databases of rows that no table holds yet: what an RFC row answers once its profiling data is added."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from castq.rfc.rows import OwnRows
    from tensor_cast.performance_model.profiling_database.database import ProfilingDatabase

__all__ = ["own_database"]


def own_database(own: OwnRows, like: ProfilingDatabase, folder: Path) -> ProfilingDatabase:
    """A database in `folder` with the mapping of `like` and the given rows as its only table."""
    from tensor_cast.performance_model.profiling_database.catalogue import open_database
    from tensor_cast.performance_model.profiling_database.database import MAPPING_FILE

    folder.mkdir(parents=True)
    shutil.copyfile(like.path / MAPPING_FILE, folder / MAPPING_FILE)
    header = dict.fromkeys(name for row in own.rows for name in row)
    with (folder / f"{own.kernel}.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(header), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(own.rows)
    return open_database(folder)

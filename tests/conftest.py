"""Makes `tests/support.py` importable from every test folder, and keeps what tests cache out of the user's folder."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="castq-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

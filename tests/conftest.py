"""The tests see the defaults, whatever the developer's own configuration says."""

import os
import tempfile
from pathlib import Path

_directory = tempfile.TemporaryDirectory()
_path = Path(_directory.name) / "ziggurat_config.json"
_path.write_text("{}")
os.environ["ZIGGURAT_CONFIG_PATH"] = str(_path)

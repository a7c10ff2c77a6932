"""Makes the testbed's package importable for the unit tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mainstay_testbed import (cgroups, cli, control, errors, host, image, images, node, plan, programs, state,  # noqa: E402,F401
                              supervise)

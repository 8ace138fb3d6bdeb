"""Names and ids that others choose."""

from __future__ import annotations

import re

# Visible characters and blanks: names are shown to people, and PostgreSQL refuses a NUL.
NAME = re.compile(r"[^\x00-\x1f\x7f]{1,256}")

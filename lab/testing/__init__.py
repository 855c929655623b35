"""Tests for authors of plug-ins: what every backend passes. They need pytest.

It imports any room, and none imports it. Begin with `backend.py`.
"""

import pytest

pytest.register_assert_rewrite("lab.testing.backend")

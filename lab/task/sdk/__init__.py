"""The modules that training programs import: records, data, flags, start, interrupts, models."""

from lab.protocol.volume.layout import LOST_CONTACT

__all__ = ["LOST_CONTACT"]

"""The saved model, as training programs import it."""

from lab.saved_model import SavedModel, load_model, save_model

__all__ = ["SavedModel", "load_model", "save_model"]

"""LiteLLM, imported at its first use: it takes seconds and 200 MB."""

import importlib
import logging
import os
from typing import Any

from osmosis_ai.extras import extra


def load_litellm(needed_by: str) -> Any:
    """The module ``litellm``. Its price table is read from the package, not fetched over the network.

    Raises:
        ModuleNotFoundError: it is not installed; the text names the extra ``needed_by``.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    with extra(needed_by):
        module: Any = importlib.import_module("litellm")
    module.suppress_debug_info = True
    # An account of every call would fill the log of a run.
    logging.getLogger("LiteLLM").setLevel(logging.WARNING)
    return module

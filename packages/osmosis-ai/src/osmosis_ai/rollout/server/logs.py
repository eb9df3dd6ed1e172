"""Logging of a rollout server whose entrypoint did not configure any."""

import logging


def configure_default_logging() -> None:
    """Log to stderr at INFO, unless the root logger has handlers already."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    # Libraries that log everything, like Harbor, would pass the level of the root logger.
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    # A line for every callback and model call would bury what the user's code says.
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)

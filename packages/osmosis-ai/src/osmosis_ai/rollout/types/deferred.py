"""Models that build their validator when it is first used: building all of them would be a third of the import time."""

from pydantic import BaseModel


def built_on_first_use[M: type[BaseModel]](model: M) -> M:
    """For a class that was defined with ``defer_build=True``: its subclasses are built where they are defined.

    The setting would pass on to them, and a user's mistakes and local types show only when a class is built at once.
    """
    del model.model_config["defer_build"]
    return model

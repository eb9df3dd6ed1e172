"""The SDK's wheel for the environments of rollouts: the configured one, or one packed from this very installation."""

from __future__ import annotations

from osmosis_ai.environments.wheel import PACKAGE, SdkWheel, given_wheel, pack_installed
from osmosis_platform.settings import Settings

__all__ = ["PACKAGE", "SdkWheel", "sdk_wheel"]


def sdk_wheel(settings: Settings) -> SdkWheel:
    """The configured wheel, or one packed from the installed SDK into the data folder."""
    if settings.sdk_wheel is not None:
        return given_wheel(settings.sdk_wheel)
    return pack_installed(settings.data_dir / "sdk")

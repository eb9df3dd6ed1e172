"""Login with a browser on any device (the device authorization flow, RFC 8628)."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from osmosis_ai.platform.api.client import PlatformClient
from osmosis_ai.platform.errors import AuthError, PlatformError

_LONGEST_WAIT_S = 900
_SLOW_DOWN_S = 5
_LONGEST_INTERVAL_S = 30


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What the user needs: open ``url`` and confirm ``user_code``. Times are in seconds."""

    device_code: str
    user_code: str
    url: str
    expires_in: int
    interval: int


def authorize(client: PlatformClient) -> DeviceCode:
    """Ask for a device code.

    Raises:
        PlatformError: refused, unreachable, or an incomplete answer.
    """
    answer = client.post("/device/authorize", {"deviceName": socket.gethostname()})
    try:
        return DeviceCode(
            device_code=answer["device_code"],
            user_code=answer["user_code"],
            url=answer.get("verification_uri_complete") or answer["verification_uri"],
            expires_in=int(answer["expires_in"]),
            interval=int(answer["interval"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PlatformError(f"The platform's answer to the login request is incomplete: {error}.") from error


def wait_for_token(
    client: PlatformClient,
    code: DeviceCode,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Poll until the user confirmed; the answer has ``token`` and the fields of a verify answer.

    Raises:
        AuthError: denied, or not confirmed in time.
        PlatformError: the platform failed.
    """
    interval = float(code.interval)
    end = clock() + min(_LONGEST_WAIT_S, code.expires_in)
    while True:
        try:
            return client.post("/device/token", {"device_code": code.device_code})
        except PlatformError as error:
            reason = error.details.get("error")
            if error.status_code is None or error.status_code in {426, 429} or error.status_code >= 500:
                raise
            if reason == "slow_down":
                interval = min(interval + _SLOW_DOWN_S, _LONGEST_INTERVAL_S)
            elif reason == "access_denied":
                raise AuthError("The login was denied in the browser.") from error
            elif reason == "expired_token":
                raise AuthError("The code has expired. Run 'osmosis auth login' again.") from error
            elif reason != "authorization_pending":
                raise
        if clock() + interval > end:
            raise AuthError("The login was not confirmed in time. Run 'osmosis auth login' again.")
        pause(interval)

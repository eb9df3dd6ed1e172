"""What can go wrong between the engine and its server."""

from __future__ import annotations

from osmosis_trainer.errors import EngineError


class ServerError(EngineError):
    """The server refused a request, or could not be reached for as long as the engine waits."""

    code = "tinker_server_error"


class RequestLostError(ServerError):
    """Nobody knows whether a request was carried out, or the server no longer knows what it refers to.

    The engine restores the model from its last saved state; no caller has to do anything.
    """

    code = "tinker_request_lost"


class ProbeError(EngineError):
    """What the server samples from is not what it trains."""

    code = "sampler_mismatch"

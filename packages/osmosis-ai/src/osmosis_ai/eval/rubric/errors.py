"""What can go wrong between us and a judge."""

from typing import ClassVar

from osmosis_ai.errors import OsmosisError


class MissingAPIKeyError(OsmosisError, RuntimeError):
    """No API key for the judge's provider, neither as an argument nor in the environment."""

    default_code: ClassVar[str] = "MISSING_API_KEY"


class ProviderRequestError(OsmosisError, RuntimeError):
    """The judge could not be asked, or its answer is no score.

    ``provider`` may be empty when the model names none. ``detail`` holds no API key.
    """

    default_code: ClassVar[str] = "PROVIDER_REQUEST_FAILED"

    def __init__(self, provider: str, model: str, detail: str) -> None:
        super().__init__(f"judge {model!r}: {detail}", details={"provider": provider, "model": model})
        self.provider = provider
        self.model = model
        self.detail = detail


class ModelNotFoundError(ProviderRequestError):
    """The provider does not know the model."""

    default_code: ClassVar[str] = "MODEL_NOT_FOUND"

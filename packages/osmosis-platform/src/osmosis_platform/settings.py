"""Settings of the platform process: environment variables `OSMOSIS_*`, overridden by command-line options."""

from __future__ import annotations

from pathlib import Path

from packaging.version import InvalidVersion, Version
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Everything that can be set. docs/operations.md lists each one; a test fails when one is missing there."""

    model_config = SettingsConfigDict(env_prefix="OSMOSIS_", env_file=None, extra="ignore")

    data_dir: Path = Field(
        default=Path("osmosis-data"), description="Folder of everything the platform keeps."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8400, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    public_url: str | None = Field(
        default=None, description="Address under which people reach the platform; default http://HOST:PORT."
    )
    database_url: str | None = Field(
        default=None,
        description="Address of a Postgres (postgresql://...); default SQLite in the data folder.",
    )
    key_file: Path | None = Field(
        default=None,
        description="File with the master keys that encrypt secrets and sign URLs; default is beside, not inside, the data "
        "folder: <data_dir>.keys.json (created with mode 0600).",
    )
    trainer_python: Path | None = Field(
        default=None,
        description="Interpreter with osmosis_trainer; default .venv-trainer beside this environment.",
    )
    sdk_wheel: Path | None = Field(
        default=None,
        description="Wheel of osmosis-ai for rollout environments; default: built from this installation.",
    )
    evaluation_slots: int = Field(
        default=2, ge=1, description="Evaluation runs that execute at the same time."
    )
    training_slots: int = Field(default=1, ge=1, description="Training runs that execute at the same time.")
    dev_server_slots: int = Field(
        default=2, ge=1, description="Development servers that run at the same time, and per workspace."
    )
    sandbox: str = Field(
        default="auto",
        pattern="^(auto|bubblewrap|none)$",
        description="Sandbox of rollout servers; auto takes bubblewrap where it works and says so in the log.",
    )
    rollout_memory_mb: int = Field(
        default=4096, ge=64, description="Memory limit of one rollout server, in MiB."
    )
    max_active_deployments: int = Field(default=5, ge=0, description="Deployed LoRA models per workspace.")
    max_upload_bytes: int = Field(default=5 * 1024**3, ge=1, description="Largest dataset file.")
    session_days: int = Field(default=14, ge=1, description="Days until a browser session ends.")
    lease_seconds: float = Field(
        default=15.0, gt=0, description="Seconds without heartbeat until a job is taken over."
    )
    minimum_cli_version: str | None = Field(
        default=None, description="CLI versions below this one are refused with the way to upgrade."
    )
    deprecated_cli_version: str | None = Field(
        default=None, description="CLI versions up to this one are warned that they will stop working."
    )
    latest_cli_version: str | None = Field(
        default=None, description="CLI versions below this one are told that it is available."
    )
    serve_models: bool = Field(
        default=True,
        description="Whether LoRA models can be deployed and called here; without it the API shows no deployments.",
    )
    log_format: str = Field(
        default="plain",
        pattern="^(plain|json)$",
        description="Log lines on stderr: plain text or one JSON object a line.",
    )
    github_client_id: str | None = Field(
        default=None, description="OAuth app with which people may sign in by GitHub; with its secret."
    )
    github_client_secret: SecretStr | None = Field(default=None, description="Secret of that OAuth app.")
    github_url: str = Field(
        default="https://github.com", description="GitHub, or a GitHub Enterprise Server's address."
    )
    github_api_url: str = Field(
        default="https://api.github.com",
        description="The API of the same; of a server: its address and /api/v3.",
    )
    webhooks_anywhere: bool = Field(
        default=False,
        description="Whether webhooks and connected repositories may be at plain HTTP, any port and private addresses, inside the own network.",
    )
    hf_endpoint: str = Field(
        default="https://huggingface.co",
        pattern=r"^https?://[^/\s@]+(/[^\s?#]*)?$",
        description="Hugging Face, or a hub that speaks its API: where checkpoints are uploaded to.",
    )
    package_index: bool = Field(
        default=True, description="Whether rollout environments may download packages from the package index."
    )

    @property
    def signs_in_with_github(self) -> bool:
        """Whether the sign-in page offers GitHub."""
        return bool(self.github_client_id and self.github_client_secret)

    @property
    def resolved_public_url(self) -> str:
        """The public address without trailing slash; this machine's own where the platform listens on every address."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def resolved_key_file(self) -> Path:
        """Where the master keys lie: outside the data folder, so that a copy of the data reveals no secret."""
        folder = self.data_dir.resolve()
        return self.key_file or folder.with_name(folder.name + ".keys.json")

    @field_validator("data_dir", mode="before")
    @classmethod
    def _is_named(cls, value: object) -> object:
        if isinstance(value, str) and not value.strip():
            raise ValueError("the name of the folder is empty")
        return value

    @field_validator("minimum_cli_version", "deprecated_cli_version", "latest_cli_version")
    @classmethod
    def _is_version(cls, value: str | None) -> str | None:
        try:
            return None if value is None else str(Version(value))
        except InvalidVersion:
            raise ValueError(f"{value!r} is not a version such as 0.3.0") from None

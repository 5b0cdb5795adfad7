"""The service's configuration, read from the environment in this one place."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gprojci_service.errors import ConfigurationError
from gprojci_service.queue import VISIBILITY_SECONDS
from gprojci_suite.contract.input_file import BYTES_LIMIT


class Settings(BaseSettings):
    """Every setting; the variable is the field's name in capitals behind `GPROJCI_`."""

    model_config = SettingsConfigDict(env_prefix="GPROJCI_", extra="ignore")

    database_url: str = Field(
        description="SQLAlchemy URL: `postgresql+psycopg://user:password@host/name` or `sqlite:///file`."
    )
    broker_url: str = Field(description="Celery broker: `redis://host:6379/0` or `redis+socket:///path`.")
    webhook_secret: SecretStr = Field(description="Secret that GitHub signs its webhooks with; at least 16 characters.")
    webhook_secret_previous: SecretStr | None = Field(
        None, description="The secret before, still valid while GitHub changes over to the new one."
    )
    public_url: str = Field(
        "http://127.0.0.1:8000", description="Address under which people and GitHub reach the pages."
    )
    github_app_id: str | None = Field(
        None, description="GitHub App that reports: its App ID or client ID. Without credentials reports are recorded."
    )
    github_app_key_file: Path | None = Field(None, description="Path of the App's private key, a PEM file.")
    github_token: SecretStr | None = Field(
        None, description="Instead of an App: a personal token (scope repo:status). It sets statuses, not check runs."
    )
    github_client_id: str | None = Field(
        None, description="Client ID of the GitHub App, or of an OAuth App, with which people sign in on the pages."
    )
    github_client_secret: SecretStr | None = Field(None, description="The client secret that belongs to it.")
    github_api_url: str = Field("https://api.github.com", description="Base URL of GitHub's REST API, also Enterprise.")
    default_hardware: list[str] = Field(
        ["cpu"],
        min_length=1,  # without a job there is no check, and nothing says that nobody measured
        description='Hardware classes that jobs are made for unless the project says otherwise, as JSON: `["h200"]`.',
    )
    public_read: bool = Field(True, description="Whether pages and the reading API need no token.")
    lease_seconds: float = Field(60.0, gt=0, description="How long a silent worker keeps its attempt.")
    heartbeat_seconds: float = Field(10.0, gt=0, description="How often a worker is asked to call in.")
    hard_limit_seconds: float = Field(
        3600.0, gt=0, lt=VISIBILITY_SECONDS, description="Longest time an attempt may take, kept by the service."
    )
    max_attempts: int = Field(
        3, ge=1, description="Tries of a job before a lost worker or a transient failure ends it."
    )
    reaper_seconds: float = Field(15.0, gt=0, description="How often expired leases and lost messages are looked for.")
    reconcile_seconds: float = Field(
        600.0,
        gt=0,
        description="How often GitHub is asked for heads whose webhooks were lost; never without credentials.",
    )
    reuse_days: float = Field(
        7.0, ge=0, description="How long a result stands for later jobs that would measure the very same; 0 is never."
    )
    hour_prices: dict[str, float] = Field(
        {}, description='What an hour of a worker costs by hardware class, as JSON: `{"h200": 3.5}`. Jobs show theirs.'
    )
    currency: str = Field("USD", max_length=8, description="Of the prices.")
    log_format: Literal["text", "json"] = Field("text", description="Lines of text, or a JSON object for each record.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="What is logged.")
    raw_values_days: float | None = Field(
        None, gt=0, description="Days after which reports keep their medians alone; without it they stay whole."
    )
    private_notifications: bool = Field(
        False, description="Whether channels may point at addresses of private networks, and at http://."
    )
    private_repositories: bool = Field(
        False,
        description="Whether projects may be registered with repositories of private networks, http:// and file://; "
        "workers have the same setting.",
    )
    max_webhook_bytes: int = Field(25 * 1024 * 1024, description="Largest webhook body; GitHub's own cap is 25 MB.")
    upload_dir: Path = Field(Path("gprojci-uploads"), description="Where uploaded input sets are kept.")
    max_input_bytes: int = Field(
        BYTES_LIMIT, gt=0, le=BYTES_LIMIT, description="Largest input set that may be uploaded, in bytes."
    )
    max_report_bytes: int = Field(
        64 * 1024 * 1024,
        ge=4 * 1024 * 1024,  # what a worker says of a failed attempt, manifests and logs, is always taken
        description="Largest report that is taken from a worker, imported, or of a training, in bytes; at least 4 MiB.",
    )

    @field_validator(
        *("webhook_secret_previous", "github_app_id", "github_app_key_file", "github_token"),
        *("github_client_id", "github_client_secret", "raw_values_days"),
        mode="before",
    )
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if isinstance(value, str) and not value.strip() else value

    @field_validator("webhook_secret", "webhook_secret_previous")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 16:
            raise ValueError("give at least 16 characters; `openssl rand -hex 32` makes a good one")
        return value

    @field_validator("github_app_key_file")
    @classmethod
    def _is_a_private_key(cls, value: Path | None) -> Path | None:
        if value is not None:
            _check_private_key(value)
        return value

    @model_validator(mode="after")
    def _one_credential(self) -> Settings:
        app = {"GPROJCI_GITHUB_APP_ID": self.github_app_id, "GPROJCI_GITHUB_APP_KEY_FILE": self.github_app_key_file}
        present = [name for name, value in app.items() if value is not None]
        if present and self.github_token is not None:
            raise ValueError(
                f"GPROJCI_GITHUB_TOKEN and {' and '.join(present)} are set; "
                "a GitHub App does all that the token does: remove GPROJCI_GITHUB_TOKEN"
            )
        if len(present) == 1:
            (absent,) = app.keys() - set(present)
            raise ValueError(f"{absent}: is not set; a GitHub App needs it beside {present[0]}")
        return self

    @model_validator(mode="after")
    def _client_is_whole(self) -> Settings:
        if (self.github_client_id is None) != (self.github_client_secret is None):
            raise ValueError("GPROJCI_GITHUB_CLIENT_ID and GPROJCI_GITHUB_CLIENT_SECRET are needed together")
        if self.github_client_id is not None and self.github_app_id is None and self.github_token is None:
            raise ValueError(
                "GPROJCI_GITHUB_CLIENT_ID: what people may do is asked of GitHub with the App's credentials; "
                "set GPROJCI_GITHUB_APP_ID as well"
            )
        return self

    @property
    def webhook_secrets(self) -> tuple[str, ...]:
        """The secrets that a webhook may be signed with, the present one first."""
        both = (self.webhook_secret, self.webhook_secret_previous)
        return tuple(secret.get_secret_value() for secret in both if secret is not None)

    def keys(self, purpose: str) -> tuple[bytes, ...]:
        """Keys of those secrets for one purpose, so that what is signed for it is nothing for any other."""
        return tuple(hmac.new(one.encode(), purpose.encode(), hashlib.sha256).digest() for one in self.webhook_secrets)

    @field_validator("public_url", "github_api_url")
    @classmethod
    def _without_slash(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/")


def secrets_directory() -> Path | None:
    """Where settings may lie as files, named as their variables in small letters: systemd's credentials, else where
    container engines mount secrets. A variable goes before a file."""
    named = os.environ.get("CREDENTIALS_DIRECTORY")
    directory = Path(named) if named else Path("/run/secrets")
    return directory if directory.is_dir() else None


def load_settings(**overrides: object) -> Settings:
    """Reads the settings.

    Raises:
        ConfigurationError: a variable is missing or wrong; the message names it.
    """
    try:
        return Settings(_secrets_dir=secrets_directory(), **overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        reason = "is not set" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # about several variables, which the reason names
            raise ConfigurationError(reason) from error
        variable = "GPROJCI_" + "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigurationError(f"{variable}: {reason}") from error


def _check_private_key(path: Path) -> None:
    """Raises:
    ValueError: GitHub would not accept what the key in this file signs.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(
            f"{path} is not a private key without a password in PEM form; "
            'take the .pem file that GitHub offers under "Private keys" in the App\'s settings'
        ) from error
    if not isinstance(key, RSAPrivateKey):
        raise ValueError(f"{path} is not an RSA key, the only kind that GitHub Apps have")


def migrations_directory() -> Path:
    """Where the Alembic scripts are: inside the installed package, or at the top of the checkout."""
    installed = Path(__file__).parent / "_migrations"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "migrations"

"""GitHub's stand-in for the tests: real HTTP on loopback, real signatures, requests checked as GitHub describes them.

The description is `github_openapi.json`, which names its source.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jsonschema
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

OPERATIONS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("github_openapi.json").read_text())["paths"]
APP_ID = "1234"
INSTALLATION = 77
CLIENT = ("Iv1.abc", "the secret of the client")


@dataclass
class Fault:
    """What becomes of the next request that fits, instead of its answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "as told"
    method: str = ""
    path: str = ""
    after: bool = False
    """Whether the request is carried out before its answer goes wrong."""
    seconds: float = 0.0
    """How long the answer takes."""
    cut: bool = False
    """Whether the connection ends without an answer."""


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class GitHubServer(ThreadingHTTPServer):
    """One App (its key is `private_key`), installed on the repositories in `installed`, and one personal token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.private_key, self.public_key = app_key()
        self.personal_token = "a personal token"
        self.installed = {"o/r": INSTALLATION}
        self.lifetime = timedelta(hours=1)
        self.tokens: dict[str, dict[str, Any]] = {}
        self.check_runs: dict[int, dict[str, Any]] = {}
        self.statuses: list[dict[str, Any]] = []
        self.pulls: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, dict[str, Any]] = {}
        self.reactions: list[tuple[int, str]] = []
        self.permissions: dict[str, str] = {}
        self.commits: dict[str, str] = {}
        """Full SHAs, and `behind`, `ahead`, … as they are to every branch."""
        self.moved: dict[str, tuple[int, str]] = {}
        """Repositories that were renamed or transferred: GitHub's number and the present name, by the former one."""
        self.users: dict[str, int] = {}
        """Accounts that sign in, with their numbers."""
        self.grants: dict[str, dict[str, str]] = {}
        """What each code of a sign-in was given for; it is good once."""
        self.user_tokens: dict[str, str] = {}
        self.codes: set[str] = set()
        """Codes of Apps that were created from a manifest; each is good once."""
        self.faults: list[Fault] = []
        self.requests: list[Seen] = []
        self.violations: list[str] = []
        self.unchanged = 0
        """Answers that said no more than that nothing has changed."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def settings(self, directory: Path) -> dict[str, str]:
        """The service's settings as the App of this server, whose key they have in a file in `directory`."""
        key_file = directory / "app.pem"
        key_file.write_text(self.private_key)
        return {"github_app_id": APP_ID, "github_app_key_file": str(key_file), "github_api_url": self.url}

    def authorize(self, address: str, login: str) -> str:
        """What GitHub's page does once somebody has agreed there: the address that the browser is sent back to."""
        url = urlsplit(address)
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        assert (url.path, asked["client_id"]) == ("/login/oauth/authorize", CLIENT[0])
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_hex(10)
        self.grants[code] = {**asked, "login": login}
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def asked(self, method: str, ending: str) -> list[Seen]:
        """The requests of a method whose path ends so."""
        return [one for one in self.requests if one.method == method and re.search(ending + "$", one.path)]


@cache
def app_key() -> tuple[str, rsa.RSAPublicKey]:
    """The App's private key as GitHub hands it out, and the public one that GitHub keeps."""
    key = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return pem.decode(), key.public_key()


class Refusal(Exception):
    """An answer of GitHub that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Handler(BaseHTTPRequestHandler):
    """Answers as GitHub documents it."""

    server: GitHubServer

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw, url = self.rfile.read(length) if length else b"", urlsplit(self.path)
        if url.path == "/login/oauth/access_token":
            self._answer(200, self._user_token({key: values[0] for key, values in parse_qs(raw.decode()).items()}))
            return
        body = json.loads(raw) if raw else None
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        with self.server.lock:
            headers = {key.lower(): value for key, value in self.headers.items()}
            self.server.requests.append(Seen(self.command, url.path, headers, body))
            fault = self._fault(url.path)
            answer: tuple[int, Any]
            elsewhere = self._moved(url.path)
            if elsewhere is not None:
                fault = Fault(301 if self.command == "GET" else 307, {"location": self.server.url + elsewhere})
            elif fault is None or fault.after:
                answer = self._carry_out(url.path, query, body)
        if fault is not None:
            time.sleep(fault.seconds)
            if fault.cut:
                self.close_connection = True
                return
            if fault.status:
                self._answer(fault.status, {"message": fault.message}, fault.headers)
                return
        status, content = answer
        if self.command == "GET" and status == 200:
            tag = f'W/"{hashlib.sha256(json.dumps(content).encode()).hexdigest()}"'
            if self.headers.get("if-none-match") == tag:
                self.server.unchanged += 1
                self._answer(304, None, {"etag": tag})
            else:
                self._answer(status, content, {"etag": tag})
            return
        self._answer(status, content)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def _fault(self, path: str) -> Fault | None:
        for fault in self.server.faults:
            if fault.method in ("", self.command) and fault.path in path:
                self.server.faults.remove(fault)
                return fault
        return None

    def _moved(self, path: str) -> str | None:
        """Where GitHub says that a former name's path is: below the repository's number, which stays."""
        for former, (number, _) in self.server.moved.items():
            if path.startswith(f"/repos/{former}/"):
                query = urlsplit(self.path).query
                rest = f"/repositories/{number}" + path.removeprefix(f"/repos/{former}")
                return f"{rest}?{query}" if query else rest
        return None

    def _present(self, path: str) -> str:
        for number, name in self.server.moved.values():
            if path.startswith(f"/repositories/{number}/"):
                return f"/repos/{name}" + path.removeprefix(f"/repositories/{number}")
        return path

    def _carry_out(self, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        try:
            name, values = self._check(self._present(path), query, body)
            return getattr(self, name)(values, query, body)
        except Refusal as refusal:
            return refusal.status, {"message": refusal.message}

    def _check(self, path: str, query: dict[str, str], body: Any) -> tuple[str, dict[str, str]]:
        """The operation that a request is, its parameters and body checked against GitHub's description."""
        try:
            for template, methods in OPERATIONS.items():
                pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
                if "matching-refs" in template:  # the one parameter that goes over slashes
                    pattern = pattern.replace("(?P<ref>[^/]+)", "(?P<ref>.+)")
                found = re.fullmatch(pattern, unquote(path))
                if found and self.command.lower() in methods:
                    operation = methods[self.command.lower()]
                    self._check_parameters(operation, {**found.groupdict(), **query})
                    check_body(operation.get("requestBody"), body)
                    assert self.headers["accept"] == "application/vnd.github+json"
                    assert self.headers["x-github-api-version"] == "2022-11-28"
                    assert self.headers["user-agent"]
                    return operation["operationId"].replace("/", "_").replace("-", "_"), found.groupdict()
            raise AssertionError("no such operation")
        except (AssertionError, jsonschema.ValidationError) as error:
            self.server.violations.append(f"{self.command} {path}: {error}")
            raise Refusal(422, "Validation Failed") from error

    def _check_parameters(self, operation: dict[str, Any], given: dict[str, str]) -> None:
        known = {parameter["name"]: parameter["schema"] for parameter in operation["parameters"]}
        assert given.keys() <= known.keys(), f"unknown parameters {given.keys() - known.keys()}"
        for name, value in given.items():
            whole = known[name]["type"] == "integer"
            jsonschema.validate(int(value) if whole else value, known[name])

    def _bearer(self) -> str:
        kind, _, secret = self.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not secret:
            raise Refusal(401, "Requires authentication")
        return secret

    def _as_app(self) -> None:
        try:
            claims = jwt.decode(
                self._bearer(),
                self.server.public_key,
                algorithms=["RS256"],
                issuer=APP_ID,
                options={"require": ["iat", "exp", "iss"]},
            )
        except jwt.InvalidTokenError as error:
            raise Refusal(401, f"A JSON web token could not be decoded: {error}") from error
        if claims["exp"] - time.time() > 600:
            raise Refusal(401, "'Expiration time' claim ('exp') is too far in the future")

    def _as_installation(self, values: dict[str, str], permission: str, level: str = "write") -> None:
        secret, repository = self._bearer(), f"{values['owner']}/{values['repo']}"
        if permission == "statuses" and secret == self.server.personal_token:
            return
        token = self.server.tokens.get(secret)
        if token is None or token["expires"] < datetime.now(UTC):
            raise Refusal(401, "Bad credentials")
        if self.server.installed.get(repository) != token["installation"]:
            raise Refusal(404, "Not Found")
        if token["permissions"].get(permission) not in (level, "write"):
            raise Refusal(403, "Resource not accessible by integration")

    def _user_token(self, given: dict[str, str]) -> dict[str, str]:
        """As GitHub documents its web flow: the code is good once, for this client, address and verifier (RFC 7636)."""
        grant = self.server.grants.pop(given.get("code", ""), None)
        if (given.get("client_id"), given.get("client_secret")) != CLIENT:
            return {"error": "incorrect_client_credentials"}
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if grant is None or (grant["redirect_uri"], grant["code_challenge"]) != (given["redirect_uri"], challenge):
            return {"error": "bad_verification_code"}
        token = "ghu_" + secrets.token_hex(8)
        self.server.user_tokens[token] = grant["login"]
        return {"access_token": token, "token_type": "bearer", "scope": ""}

    def users_get_authenticated(self, _values: Any, _query: Any, _body: Any) -> tuple[int, Any]:
        login = self.server.user_tokens.get(self._bearer())
        if login is None:
            raise Refusal(401, "Bad credentials")
        return 200, {"login": login, "id": self.server.users[login], "type": "User"}

    def apps_get_repo_installation(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        self._as_app()
        number = self.server.installed.get(f"{values['owner']}/{values['repo']}")
        if number is None:
            raise Refusal(404, "Not Found")
        return 200, {"id": number, "app_id": int(APP_ID)}

    def apps_create_installation_access_token(self, values: dict[str, str], _query: Any, body: Any) -> tuple[int, Any]:
        self._as_app()
        if int(values["installation_id"]) not in self.server.installed.values():
            raise Refusal(404, "Not Found")
        secret, expires = "ghs_" + secrets.token_hex(8), datetime.now(UTC) + self.server.lifetime
        self.server.tokens[secret] = {
            "installation": int(values["installation_id"]),
            "permissions": body["permissions"],
            "repositories": body.get("repositories"),
            "expires": expires,
        }
        return 201, {"token": secret, "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def apps_create_from_manifest(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        if "authorization" in self.headers or values["code"] not in self.server.codes:
            raise Refusal(404, "Not Found")
        self.server.codes.remove(values["code"])
        made = {"id": int(APP_ID), "name": "GProj CI", "html_url": "https://github.com/apps/gproj-ci"}
        secret = {"pem": self.server.private_key, "webhook_secret": "a new secret", "client_id": "Iv1.abc"}
        return 201, {**made, **secret, "client_secret": "not asked for"}

    def repos_create_commit_status(self, values: dict[str, str], _query: Any, body: Any) -> tuple[int, Any]:
        self._as_installation(values, "statuses")
        self.server.statuses.append({**body, "sha": values["sha"]})
        return 201, {"id": len(self.server.statuses), **body}

    def checks_create(self, values: dict[str, str], _query: Any, body: Any) -> tuple[int, Any]:
        self._as_installation(values, "checks")
        number = 1000 + len(self.server.check_runs)
        app = {"id": int(APP_ID), "client_id": "Iv1.abc"}
        self.server.check_runs[number] = {"id": number, "app": app, "history": [], **body}
        return 201, self._note(number)

    def checks_update(self, values: dict[str, str], _query: Any, body: Any) -> tuple[int, Any]:
        self._as_installation(values, "checks")
        number = int(values["check_run_id"])
        if number not in self.server.check_runs:
            raise Refusal(404, "Not Found")
        if body["status"] != "completed":
            self.server.check_runs[number].pop("conclusion", None)
        self.server.check_runs[number].update(body)
        return 200, self._note(number)

    def checks_list_for_ref(self, values: dict[str, str], query: dict[str, str], _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "checks", "read")
        found = [
            run
            for run in self.server.check_runs.values()
            if run["head_sha"] == values["ref"] and run["name"] == query["check_name"]
        ]
        return 200, {"total_count": len(found), "check_runs": found}

    def pulls_get(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests", "read")
        if int(values["pull_number"]) not in self.server.pulls:
            raise Refusal(404, "Not Found")
        return 200, self.server.pulls[int(values["pull_number"])]

    def repos_get_collaborator_permission_level(
        self, values: dict[str, str], _query: Any, _body: Any
    ) -> tuple[int, Any]:
        self._as_installation(values, "contents", "read")  # of any permission: metadata is always there
        name = values["username"]
        if name not in self.server.permissions:
            raise Refusal(404, f"{name} is not a user")
        role = self.server.permissions[name]
        level = {"maintain": "write", "triage": "read"}.get(role, role)
        return 200, {
            "permission": level,
            "role_name": role,
            "user": {"login": name, "id": self.server.users.get(name, 0)},
        }

    def repos_get_commit(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "contents", "read")
        found = [sha for sha in self.server.commits if sha.startswith(values["ref"])]
        if len(found) != 1:
            raise Refusal(422, f"No commit found for SHA: {values['ref']}")
        return 200, {"sha": found[0]}

    def repos_compare_commits_with_basehead(self, values: dict[str, str], _query: Any, _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "contents", "read")
        return 200, {"status": self.server.commits[values["basehead"].partition("...")[2]]}

    def issues_list_comments(self, values: dict[str, str], query: dict[str, str], _body: Any) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests", "read")
        size, page = int(query["per_page"]), int(query["page"])
        return 200, list(self.server.comments.values())[size * (page - 1) : size * page]

    def issues_create_comment(self, values: dict[str, str], _query: Any, body: Any) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests")
        number = 5000 + len(self.server.comments)
        made = {"id": number, "issue": int(values["issue_number"]), "performed_via_github_app": {"id": int(APP_ID)}}
        self.server.comments[number] = {**made, **body}
        return 201, self.server.comments[number]

    def issues_update_comment(self, values: dict[str, str], _query: Any, body: Any) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests")
        if int(values["comment_id"]) not in self.server.comments:
            raise Refusal(404, "Not Found")
        self.server.comments[int(values["comment_id"])].update(body)
        return 200, self.server.comments[int(values["comment_id"])]

    def reactions_create_for_issue_comment(self, values: dict[str, str], _query: Any, body: Any) -> tuple[int, Any]:
        self._as_installation(values, "pull_requests")
        self.server.reactions.append((int(values["comment_id"]), body["content"]))
        return 201, {"id": len(self.server.reactions), **body}

    def _note(self, number: int) -> dict[str, Any]:
        run = self.server.check_runs[number]
        run["history"].append((run["status"], run.get("conclusion")))
        return run

    def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        raw = b"" if status == 304 else json.dumps(body).encode()
        try:
            self.send_response(status)
            for name, value in {"content-length": str(len(raw)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)
        except BrokenPipeError:
            return  # the client did not wait for a slow answer

    def log_message(self, *_: object) -> None:
        return


def check_body(described: dict[str, Any] | None, body: Any) -> None:
    """Raises:
    AssertionError, jsonschema.ValidationError: the body is not what GitHub describes.
    """
    if described is None:
        assert body is None, "a body where none is described"
        return
    assert body is not None or not described["required"], "no body"
    jsonschema.validate(body, described["schema"], format_checker=jsonschema.FormatChecker())
    assert body.keys() <= described["schema"]["properties"].keys(), "fields that GitHub does not know"
    if body.get("status") == "completed":
        assert "conclusion" in body, "a completed check run has a conclusion"
    elif "status" in body:
        assert "conclusion" not in body, "a conclusion completes a check run"


def start(server: GitHubServer | None = None) -> tuple[GitHubServer, Callable[[], None]]:
    """A running server, and what stops it."""
    server = server or GitHubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server, stop

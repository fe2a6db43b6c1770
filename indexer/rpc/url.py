"""An endpoint's URL: what of it may be shown, and what may not."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl, unquote, urlsplit

from indexer.errors import BadRpcUrl

_SECRET_MIN_LENGTH = 6
_MAX_TEXT = 300


class EndpointUrl:
    """Only `shown` (scheme://host:port) may appear in any text."""

    def __init__(self, url: str, *, schemes: Collection[str], setting: str) -> None:
        """Raises BadRpcUrl, which names `setting` and not the URL."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in schemes or not host:
            kinds = " or ".join(f"{scheme}://" for scheme in schemes)
            raise BadRpcUrl(
                f"an RPC endpoint is not an {kinds} URL with a host",
                help_text=f"correct `{setting}`, for example {next(iter(schemes))}://127.0.0.1:8545",
            )
        shown_host = f"[{host}]" if ":" in host else host
        self.secret = url
        self.shown = f"{parts.scheme}://{shown_host}" + (f":{port}" if port else "")
        candidates = [parts.username, parts.password, *parts.path.split("/")]
        candidates += [value for _, value in parse_qsl(parts.query)]
        secrets = {text for text in candidates if text and len(text) >= _SECRET_MIN_LENGTH}
        secrets |= {unquote(text) for text in secrets}
        self._secrets = tuple(sorted(secrets, key=len, reverse=True))

    def without_secrets(self, text: str) -> str:
        """The node's own text, short, and without what the URL keeps secret."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:_MAX_TEXT]

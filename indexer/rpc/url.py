"""An endpoint's URL: what of it may be shown, and what may not."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

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
            # Whoever looks the host up encodes it so, and fails where a label is empty or too long.
            (host or "").encode("idna")
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
        secrets = {text for text in _candidates(parts) if len(text) >= _SECRET_MIN_LENGTH}
        longest_first = sorted(secrets, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)

    def without_secrets(self, text: str) -> str:
        """The node's own text, short, and without what the URL keeps secret."""
        if self._secrets.pattern:
            text = self._secrets.sub("***", text)
        return text[:_MAX_TEXT]


def _candidates(parts: SplitResult) -> Iterator[str]:
    """What may be a secret, as it is written and as a server may read it."""
    written = [parts.username, parts.password, *parts.path.split("/")]
    for field in parts.query.split("&"):
        name, _, value = field.partition("=")
        # A key without a value is the secret itself.
        written.append(value or name)
    for text in filter(None, written):
        yield from (text, unquote(text), unquote_plus(text))
    if parts.username and parts.password:
        pair = f"{unquote(parts.username)}:{unquote(parts.password)}"
        yield b64encode(pair.encode()).decode()

"""Who may ask: addresses on which is served with and without a token, and the comparison of tokens."""

from __future__ import annotations

import hmac
import ipaddress
import socket

from tfsched.errors import TfschedError

TOKEN = "TFSCHED_CONTROL_TOKEN"
_SCHEME = "Bearer "


def resolved(host: str, token: str | None, what: str) -> str:
    """The address to listen on. What is checked is what is listened on: a name is looked up once, here.

    Args:
      host: address or name of an interface of this machine.
      token: that askers have to know; None for none.
      what: for errors, "the control service".

    Raises:
      TfschedError: ``host`` is unknown, or reaches beyond this machine and there is no token.
    """
    try:
        address = str(socket.getaddrinfo(host or "?", None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise TfschedError(
            f"{what} cannot listen on host {host!r} ({error.strerror or error}); give an address of this machine."
        ) from None
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback and token is None:
        raise TfschedError(
            f"{what} would be open to others than this machine on host {host!r}, and has no token; give one (token=, or "
            f"{TOKEN} in the environment), or listen on 127.0.0.1."
        )
    return address


def checked_token(token: str | None) -> str | None:
    """The token; None for none.

    Raises:
      TfschedError: it is empty, or has characters that no header can carry.
    """
    if token is None:
        return None
    if not isinstance(token, str) or not token or not all("!" <= character <= "~" for character in token):
        raise TfschedError("the token is empty or has characters beside printable ASCII; give letters and digits.")
    return token


def header(token: str) -> str:
    """What an asker sends as "authorization"."""
    return _SCHEME + token


def fits(sent: str | bytes | None, token: str) -> bool:
    """Whether the "authorization" that was sent is right; in the same time wherever it goes wrong."""
    given = sent.encode("utf-8", "replace") if isinstance(sent, str) else sent or b""
    return hmac.compare_digest(given, header(token).encode())


def joined(address: str, port: int) -> str:
    """host:port, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

"""Keep credentials out of everything that is printed, saved or sent."""

from __future__ import annotations

import re

HIDDEN = "***"
_USERINFO = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_QUERY = re.compile(r"([?&][^=&\s]*(?:password|passwd|secret|token|key|sig)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE)
_SECRET_KEY = re.compile(
    r"(?:^|[._-])(?:password|passwd|secret|credentials?|(?:api|access|private|secret)[_-]?key|"
    r"(?:api|auth|access|bearer|hub|hf)[_-]?token)$",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """The text with `***` for user and password, and for secret query values, in every URL it holds."""
    return _QUERY.sub(rf"\1{HIDDEN}", _USERINFO.sub(HIDDEN, text))


def is_secret(key: str) -> bool:
    """Whether a setting's name says that its value is a secret (`api_key` is, `num_tokens` is not)."""
    return bool(_SECRET_KEY.search(key))

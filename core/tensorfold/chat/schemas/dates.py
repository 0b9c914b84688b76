"""Dates and times as expressions: the grammar library's own know no lengths of months (RFC 3339, section 5.6)."""

from __future__ import annotations

from typing import Final

__all__ = ["DATE_FORMATS"]

_DAY: Final = r"(0[1-9]|[12]\d"
_COMMON: Final = rf"\d{{4}}-((0[13578]|1[02])-{_DAY}|3[01])|(0[469]|11)-{_DAY}|30)|02-(0[1-9]|1\d|2[0-8]))"
_LEAP: Final = r"(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
_DATE: Final = f"({_COMMON}|{_LEAP})"
_HOUR: Final = r"([01]\d|2[0-3])"
_TIME: Final = (
    rf"({_HOUR}:[0-5]\d:[0-5]\d(\.\d+)?(Z|[+\-]{_HOUR}:[0-5]\d)"
    # A second that is put in stands at the end of a day, in universal time.
    r"|23:59:60(\.\d+)?Z)"
)

DATE_FORMATS: Final = {"date": f"^{_DATE}$", "date-time": f"^{_DATE}T{_TIME}$"}
"""Format to the expression that all of its texts match, and no other text."""

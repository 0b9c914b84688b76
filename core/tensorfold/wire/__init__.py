"""What dialects share over msgspec: checked JSON whose errors name the field, in plain words.

| module | what it does |
|---|---|
| body | UTF-8, nesting and size of a body, before anything is decoded |
| decoding | `BodyDecoder`: a body to a typed struct |
| values | the same for one JSON text; errors as `DecodeError` with the field's path |
| paths | where in a JSON text a byte stands |
| numbers | lenient numbers: `"0.7"` and `7.0` where an API takes them |
| prompts | `prompt` as text, texts, ids or lists of ids |
| unserved | fields that an API knows and this server does not serve |
| chat_messages, chats | the conversation of a chat, as OpenAI and the servers beside it spell it |
| arguments | a call's arguments as an object |
| grammars | the fields that bind a reply's form, as OpenAI and vLLM spell them |
| envelope | OpenAI's error envelope |
| stats | how fast a reply was |

Duplicate keys: the last one counts, as in the usual JSON libraries. Unknown keys are ignored.
"""

from tensorfold.wire.body import MAX_DEPTH, check_body
from tensorfold.wire.decoding import BodyDecoder
from tensorfold.wire.numbers import Int64, LenientNumber, lenient_float, lenient_int
from tensorfold.wire.paths import path_at
from tensorfold.wire.prompts import read_prompts
from tensorfold.wire.unserved import UnservedFields
from tensorfold.wire.values import decode_value

__all__ = [
    "MAX_DEPTH",
    "BodyDecoder",
    "Int64",
    "LenientNumber",
    "UnservedFields",
    "check_body",
    "decode_value",
    "lenient_float",
    "lenient_int",
    "path_at",
    "read_prompts",
]

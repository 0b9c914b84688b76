"""The request IR: what every dialect decodes to, and what the engine answers with. Frozen values, serializable.

Shape is checked in the dialect's wire types, meaning here in `__post_init__` (an impossible `Request` cannot
exist, whoever built it), feasibility (window, vocabulary) at admission in the engine.
"""

from __future__ import annotations

from tensorfold.ir.answers import (
    Answer,
    ChoiceAnswer,
    fold,
)
from tensorfold.ir.events import (
    Alternative,
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Started,
    Stopped,
    StopReason,
    TextDelta,
    ThinkingDelta,
    Timings,
    TokenInfo,
    ToolCallDelta,
    Usage,
)
from tensorfold.ir.grammars import (
    Choice,
    Ebnf,
    Grammar,
    JsonObject,
    JsonSchema,
    Regex,
)
from tensorfold.ir.json_value import (
    JSON,
)
from tensorfold.ir.limits import (
    Limits,
)
from tensorfold.ir.messages import (
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from tensorfold.ir.prompts import (
    Chat,
    Prompt,
    TextPrompt,
    TokensPrompt,
)
from tensorfold.ir.requests import (
    MAX_ALTERNATIVES,
    MAX_CHOICES,
    Request,
    ToolChoice,
    TraceContext,
)
from tensorfold.ir.sampling import (
    Sampling,
)
from tensorfold.ir.scores import (
    MAX_SPELLINGS,
    Label,
    LabelScore,
    Score,
    Scored,
    SpellingScore,
)

__all__ = [
    "JSON",
    "MAX_ALTERNATIVES",
    "MAX_CHOICES",
    "MAX_SPELLINGS",
    "Alternative",
    "Answer",
    "Chat",
    "Choice",
    "ChoiceAnswer",
    "Ebnf",
    "Event",
    "Failed",
    "Finished",
    "Grammar",
    "Image",
    "JsonObject",
    "JsonSchema",
    "Label",
    "LabelScore",
    "Limits",
    "Message",
    "Part",
    "Progress",
    "Prompt",
    "Queued",
    "Regex",
    "Request",
    "Role",
    "Sampling",
    "Score",
    "Scored",
    "SpellingScore",
    "Started",
    "StopReason",
    "Stopped",
    "Text",
    "TextDelta",
    "TextPrompt",
    "Thinking",
    "ThinkingDelta",
    "Timings",
    "TokenInfo",
    "TokensPrompt",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "ToolResult",
    "TraceContext",
    "Usage",
    "fold",
]

"""The engine as an inquiry sees it: each prompt that it asks about passes the filters first, as a request for it does,
and what is computed for it is told to observers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.engine import CanScore, Engine, EngineStatus, EventStream, ModelInfo, PreparedPrompt, Services
from tensorfold.contracts.observe import Outcome
from tensorfold.errors import GenerationFailed, RequestError
from tensorfold.http.audience import Audience
from tensorfold.http.run import CLIENT_LEFT
from tensorfold.http.visit import Visit
from tensorfold.ir import Limits, Prompt, Request, Score, Scored

__all__ = ["admitted_services"]


@dataclass(frozen=True, slots=True)
class AdmittedServices:
    """Implements `contracts.engine.Services` for one inquiry."""

    engine: Engine
    model: ModelInfo
    tokenizer: Tokenizer | None


class AdmittedEngine:
    """Implements `contracts.engine.Engine` for one inquiry of one caller."""

    def __init__(self, engine: Engine, audience: Audience, visit: Visit) -> None:
        self._engine = engine
        self._audience = audience
        self._visit = visit
        self._seen: list[tuple[Prompt, Request]] = []
        """Each prompt asked about, and the request for it as the filters left it."""

    async def submit(self, request: Request) -> EventStream:
        """As the engine, behind the filters."""
        return await self._engine.submit(self._admitted(request))

    async def prepare(self, request: Request) -> PreparedPrompt:
        """As the engine, behind the filters."""
        return await self._engine.prepare(self._admitted(request))

    def status(self) -> EngineStatus:
        """The engine's."""
        return self._engine.status()

    async def close(self, grace: float) -> None:
        """The engine is not an inquiry's to close."""
        raise AssertionError("an inquiry closes no engine")

    def _admitted(self, request: Request) -> Request:
        """Each prompt passes once: what is first rendered and then scored is one request, to a quota also."""
        for prompt, seen in self._seen:
            if prompt is request.prompt:
                return msgspec.structs.replace(seen, id=request.id)
        admitted = self._audience.admit(self._visit.sent(request))
        self._seen.append((request.prompt, admitted))
        return admitted


class ScoringEngine(AdmittedEngine):
    """The same where the engine can score."""

    def __init__(self, engine: Engine, scoring: CanScore, audience: Audience, visit: Visit) -> None:
        super().__init__(engine, audience, visit)
        self._scoring = scoring

    async def score(self, request: Score) -> Scored:
        """As the engine, behind the filters, which see a request for one token; observers are told of the same."""
        seen = self._admitted(
            Request(
                id=request.id,
                prompt=request.prompt,
                model=request.model,
                limits=Limits(max_tokens=1),
                priority=request.priority,
                deadline=request.deadline,
            )
        )
        admitted = msgspec.structs.replace(
            request,
            prompt=seen.prompt,
            model=seen.model,
            priority=seen.priority,
            principal=seen.principal,
            deadline=seen.deadline,
        )
        self._audience.started(seen, self._visit.endpoint)
        outcome = self._outcome(CLIENT_LEFT, "abort")
        try:
            scored = await self._scoring.score(admitted)
            outcome = self._outcome(200, "end", scored)
            return scored
        except RequestError as error:
            outcome = self._outcome(error.status, error.type)
            raise
        except Exception:
            outcome = self._outcome(500, GenerationFailed.type)
            raise
        finally:
            self._audience.ended(seen, self._visit.endpoint, outcome)

    def _outcome(self, status: int, reason: str, scored: Scored | None = None) -> Outcome:
        return Outcome(
            status=status,
            reason=reason,
            usage=None if scored is None else scored.usage,
            timings=None if scored is None else scored.timings,
            seconds=time.monotonic() - self._visit.arrived,
            first_token_seconds=None,
        )


def admitted_services(services: Services, audience: Audience, visit: Visit) -> Services:
    """What the inquiry of one visit may use."""
    engine = services.engine
    admitted = (
        ScoringEngine(engine, engine, audience, visit)
        if isinstance(engine, CanScore)
        else AdmittedEngine(engine, audience, visit)
    )
    return AdmittedServices(admitted, services.model, services.tokenizer)

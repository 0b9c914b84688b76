"""The engine as an inquiry sees it: each prompt that it asks about passes the filters first, as a request for it does."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.engine import CanScore, Engine, EngineStatus, EventStream, ModelInfo, PreparedPrompt, Services
from tensorfold.http.audience import Audience
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

    def __init__(self, engine: Engine, audience: Audience, principal: str | None) -> None:
        self._engine = engine
        self._audience = audience
        self._principal = principal
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
        if self._principal is not None:
            request = msgspec.structs.replace(request, principal=self._principal)
        admitted = self._audience.admit(request)
        self._seen.append((request.prompt, admitted))
        return admitted


class ScoringEngine(AdmittedEngine):
    """The same where the engine can score."""

    def __init__(self, engine: Engine, scoring: CanScore, audience: Audience, principal: str | None) -> None:
        super().__init__(engine, audience, principal)
        self._scoring = scoring

    async def score(self, request: Score) -> Scored:
        """As the engine, behind the filters, which see a request for one token."""
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
        return await self._scoring.score(
            msgspec.structs.replace(
                request,
                prompt=seen.prompt,
                model=seen.model,
                priority=seen.priority,
                principal=seen.principal,
                deadline=seen.deadline,
            )
        )


def admitted_services(services: Services, audience: Audience, principal: str | None) -> Services:
    """What one inquiry may use; `principal` is the label of the key that asked."""
    engine = services.engine
    admitted = (
        ScoringEngine(engine, engine, audience, principal)
        if isinstance(engine, CanScore)
        else AdmittedEngine(engine, audience, principal)
    )
    return AdmittedServices(admitted, services.model, services.tokenizer)

"""The real clients of two of the APIs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
import typesafe_sdk

from tensorfold.http import Application
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.serving import served

from .bodies import ORDERED, SYSTEM_ONE


@pytest.fixture
def url(app: Application) -> Iterator[str]:
    with served(app) as url:
        yield url


@pytest.mark.requirement("Y-055")
def test_the_openai_sdk(url: str) -> None:
    """`client.decisions.create`, strictly validated."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", _strict_response_validation=True, max_retries=0) as sdk:
        questions: Any = ORDERED["questions"]
        told = sdk.decisions.create(model="gpt-6-luna", input="I was charged twice.", questions=questions)
        assert [answer.type for answer in told.answers] == ["choice", "score", "predicate"]
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.decisions.create(model="m", input="", questions=questions)
    assert refused.value.param == "input"


@pytest.mark.requirement("Y-068", "Y-070")
def test_the_typesafe_sdk(url: str) -> None:
    """System One as its own SDK asks and reads it."""
    with typesafe_sdk.TypeSafeClient(api_key="x", base_url=url, model="m") as sdk:
        questions: Any = SYSTEM_ONE["questions"]
        told = sdk.system_one(state=SYSTEM_ONE["state"], questions=questions)
        assert [model.name for model in sdk.models.list().models] == ["acme/quokka", "quokka"]
    assert told.model == MODEL.id
    assert told.usage.output_tokens == 3
    assert set(told.answers) == {"topic", "anger", "spam"}

"""Every model of the zoo against LiteRT's reference kernels, on random inputs: `make test-exhaustive`."""

from __future__ import annotations

import json

import pytest

from tests.models.collection import zoo, zoo_model
from tests.models.comparison import compared_on_random_inputs
from tests.needs import SHARED

_INDEX = SHARED / "models" / "zoo" / "index.json"
MODELS = [e["name"] for e in json.loads(_INDEX.read_text())["models"]] if _INDEX.exists() else ["(absent)"]

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("name", sorted(MODELS, key=lambda name: name))
def test_a_model_of_the_zoo_gives_what_the_reference_gives(name):
    assert zoo()
    data = zoo_model(name)
    found = compared_on_random_inputs(data)
    print(f"{name}: {found}")
    assert found.passes, str(found)

"""The calls of users' machines: methods of the farm's face, the scope of each, their JSON, and the answers.

Arguments and answers have the types of the methods themselves, so that there is one description of both ends.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model

from orchestrator.db.engine.sessions import RefusedError
from orchestrator.errors import UsageError
from orchestrator.farm.again.refining import Refinements
from orchestrator.farm.again.steering import Steering
from orchestrator.farm.local.one_machine import PresentDevices
from orchestrator.farm.opening import Farm
from orchestrator.farm.reading.cells import Reading
from orchestrator.farm.submit.requests import Requests
from orchestrator.policy.rights import Scope, User

LONGEST_TEXT: Final = 300
"""Characters of a name, a reference or a reason in a call, at most. Chosen: ids and names have at most 100; a
database refuses endless patterns with an error of its own, which names its file."""


@dataclass(frozen=True, slots=True)
class Call:
    """A method that users may call. `part`: the attribute of the farm that has it."""

    part: str
    method: Callable[..., Any]
    scope: Scope

    @property
    def name(self) -> str:
        """`reading.campaigns`."""
        return f"{self.part}.{self.method.__name__}"

    def written(self, *args: Any, **kwargs: Any) -> bytes:
        """Arguments as JSON. Raises `TypeError` for those that the method does not take."""
        # `None` stands in for `self`, which is not sent.
        bound = inspect.signature(self.method).bind(None, *args, **kwargs).arguments
        given = {name: value for name, value in bound.items() if name != "self"}
        # Unchecked on this side: the farm checks what arrives, whoever has sent it.
        return _arguments(self.method).model_construct(**given).model_dump_json().encode()

    def read(self, text: bytes) -> dict[str, Any]:
        """Arguments of JSON. Raises `ValueError`."""
        found = _arguments(self.method).model_validate_json(text)
        return {name: getattr(found, name) for name in type(found).model_fields}

    @property
    def answer(self) -> TypeAdapter[Any]:
        """The form of the answer."""
        return _answer(self.method)


def _calls(part: str, scope: Scope, *methods: Callable[..., Any]) -> tuple[Call, ...]:
    return tuple(Call(part, method, scope) for method in methods)


_ALL = (
    *_calls(
        "reading", Scope.READ,
        Reading.campaigns, Reading.campaign, Reading.page, Reading.cell, Reading.overview, Reading.why,
        Reading.waiting, Reading.history, Reading.output, Reading.begin, Reading.news, Reading.devices,
        Reading.model_facts, Reading.manifest, Reading.groups,
    ),
    *_calls("devices", Scope.READ, PresentDevices.hello),
    *_calls("requests", Scope.SUBMIT, Requests.preview, Requests.place),
    *_calls("refinements", Scope.SUBMIT, Refinements.refine),
    *_calls("steering", Scope.CANCEL_OWN, Steering.cancel, Steering.pause, Steering.resume),
    *_calls(
        "steering", Scope.SUBMIT,
        Steering.retry, Steering.prioritise, Steering.reserve, Steering.release,
    ),
    *_calls(
        "steering", Scope.ADMIN,
        Steering.quarantine, Steering.cool_down, Steering.record_noise,
    ),
)  # fmt: skip
CALLS: Final[Mapping[str, Call]] = {call.name: call for call in _ALL}
"""Every call by its name. What is not here needs the database: it is done on the server."""


@cache
def _arguments(method: Callable[..., Any]) -> type[BaseModel]:
    types = get_type_hints(method)
    fields: dict[str, Any] = {
        name: (types[name], ... if taken.default is taken.empty else taken.default)
        for name, taken in inspect.signature(method).parameters.items()
        if name != "self"
    }
    return create_model("Arguments", __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)


@cache
def _answer(method: Callable[..., Any]) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(method)["return"])


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UsersFace:
    """The calls of `CALLS`. Any thread may use it."""

    farm: Farm

    def scope_of(self, call: str) -> Scope | None:
        """Return the scope that a call needs; None: there is no such call."""
        return CALLS[call].scope if call in CALLS else None

    def answer(self, user: User, call: str, arguments: bytes) -> bytes:
        """Make a call for a user. Raises what the method raises, and `UsageError` for other arguments."""
        found = CALLS[call]
        try:
            given = found.read(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"{call}: {where}: {first['msg']}") from error
        for name, value in given.items():
            if isinstance(value, str) and len(value) > LONGEST_TEXT:
                raise UsageError(
                    f"{call}: {name} has {len(value)} characters; at most {LONGEST_TEXT} are read"
                )
        method = attrgetter(found.name)(self.farm.seen_by(user))
        try:
            return found.answer.dump_json(method(**given))
        except RefusedError as error:
            # Texts with a NUL, numbers of more than 64 bits: nothing of it was stored.
            log.warning("user %s: %s: the database refuses it: %s", user.name, call, type(error).__name__)
            raise UsageError(f"{call}: the farm's database does not take these values") from error

"""Reads which changes of a series are accepted, from a file that a team keeps beside its campaign files."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.errors import UsageError

_EXPECTED = "expected [[accepted]] with model, at, note and perhaps delegate"


class Note(BaseModel):
    """A change that is meant to be: the version `at` which a model's series changed, and why that is right.

    Without `delegate` it is that of every series of the model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    at: str
    note: str
    delegate: str | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    accepted: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class Notes:
    """The accepted changes."""

    accepted: tuple[Note, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "Notes":
        """Read the file. Raises `UsageError` with what is wrong in it."""
        try:
            return cls(_File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).accepted)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        # Before `ValueError`, of which it is one, as is the error of `tomllib`.
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"{path}: {where}: {first['msg']}; {_EXPECTED}") from error
        except ValueError as error:
            raise UsageError(f"{path}: {error}; {_EXPECTED}") from error

    def on(self, model: str, delegate: str, version: str) -> str | None:
        """Return the note on a change; None where it is not accepted."""
        return next(
            (
                one.note
                for one in self.accepted
                if (one.model, one.at) == (model, version) and one.delegate in (None, delegate)
            ),
            None,
        )

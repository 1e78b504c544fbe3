"""Brings a campaign's models into the store; everything that can be refused is refused first."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from orchestrator.errors import UnreachableError, UsageError
from orchestrator.manifest.campaign import ModelEntry, scheme_of
from orchestrator.manifest.problems import ManifestError, Problem
from orchestrator.sources import files
from orchestrator.sources.content import Requirement, require_labelled_data, require_model
from orchestrator.sources.npm import Package, download_package, open_packed, parse_npm
from orchestrator.sources.pypi import Wheel, download, open_member, parse_source, recall, remember
from orchestrator.sources.store import DEFAULT_MAX_BYTES, Store, StoredFile, wrong_hash
from orchestrator.sources.web import Web, parse_url
from orchestrator.sources.zoo import zoo_model
from runtime.model.graph import Tensor
from runtime.model.integer_inputs import integer_ranges
from runtime.model.reader import load_model


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in the store.

    `origin` is the source as it was given. `problem` says why the bounded reader refuses the file, else
    None: such a model is measured all the same, its cells end `failed` with that reason. `unreachable` says
    why the file or its labelled data could not be fetched, else None; then `sha256` is empty. `inputs`: those
    of its first graph, by name; `ranges`: what their use in the graph tells, as `integer_ranges`.
    """

    id: str
    sha256: str
    size_bytes: int
    origin: str
    problem: str | None = None
    unreachable: str | None = None
    inputs: Mapping[str, Tensor] = field(default_factory=dict, compare=False)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class CheckedSources:
    """Models whose sources `check_all` found valid; relative paths start at `base_dir`.

    Only these can be fetched, so a local file is read for its pinned hash once in a submission. The store
    still hashes what it copies in: the file may change between the two.
    """

    entries: tuple[ModelEntry, ...]
    base_dir: Path

    @property
    def are_copied(self) -> bool:
        """Whether all that they name, inputs too, are local files: nothing is downloaded or restored."""
        named = [entry.source for entry in (*self.entries, *self.labelled_data.entries)]
        named += [one for entry in self.entries for own in entry.own_inputs.values() for one in own.sources]
        return all(scheme_of(one) == "file" and not one.endswith(files.SKELETON_SUFFIX) for one in named)

    @property
    def labelled_data(self) -> "CheckedSources":
        """The labelled data of these models: it was checked with them."""
        found = (data_source(entry) for entry in self.entries)
        return CheckedSources(tuple(entry for entry in found if entry is not None), self.base_dir)


def resolve(entry: ModelEntry, store: Store, base_dir: Path) -> StoredModel:
    """Check one model and bring it into the store. Raises as `check_all` and `resolve_all`."""
    return resolve_all(check_all([entry], base_dir), store)[0]


def resolve_all(
    checked: CheckedSources,
    store: Store,
    note: Callable[[str], None] = lambda _: None,
    web: Web = Web(),  # noqa: B008  # a constant
) -> tuple[StoredModel, ...]:
    """Bring models into the store, in their order; a wheel or package that several share is downloaded once.

    A model whose server or package index cannot be reached is returned as `unreachable`, so that the others
    can be measured. `note` receives a line for each slow step; `web` limits the reachable addresses. Raises
    `UsageError` for a version or member that does not exist and for a wrong sha256, `UnreachableError` where
    no model at all can be reached.
    """
    with _Resolver(store, checked.base_dir, note, web, require_model) as resolver:
        models = tuple(_resolved(resolver, entry) for entry in checked.entries)
    reasons = [model.unreachable for model in models if model.unreachable]
    if models and len(reasons) == len(models):
        raise UnreachableError(reasons[0])
    return models


def _resolved(resolver: "_Resolver", entry: ModelEntry) -> StoredModel:
    try:
        return resolver.resolve(entry)
    except UnreachableError as error:
        return not_fetched(entry.id, entry.source, str(error))


def not_fetched(model_id: str, origin: str, reason: str) -> StoredModel:
    """Return a model of which nothing can be measured, since its file or its labelled data are missing."""
    return StoredModel(model_id, "", 0, origin, unreachable=reason)


def fetch_labelled_data(
    checked: CheckedSources, store: Store, note: Callable[[str], None], web: Web
) -> tuple[StoredFile | UnreachableError, ...]:
    """Bring labelled data into the store; what cannot be reached stands as its error among the others.

    Raises `UsageError` as `resolve_all`, also for a file of another kind.
    """
    with _Resolver(store, checked.base_dir, note, web, require_labelled_data) as resolver:
        return tuple(_brought(resolver, entry) for entry in checked.entries)


def _brought(resolver: "_Resolver", entry: ModelEntry) -> StoredFile | UnreachableError:
    try:
        return resolver.bring(entry)
    except UnreachableError as error:
        return error


def check_all(
    entries: Iterable[ModelEntry],
    base_dir: Path,
    file: str | None = None,
    most_bytes: int = DEFAULT_MAX_BYTES,
) -> CheckedSources:
    """Check every source before anything is fetched: its form, the local file, its size (at most
    `most_bytes`), kind and content, a pinned file's hash.

    Raises `UsageError`; with the campaign file's name, one `ManifestError` with every mistake and its place.
    """
    checked = CheckedSources(tuple(entries), base_dir)
    problems = problems_of(checked.entries, base_dir, most_bytes)
    if problems:
        raise UsageError(problems[0].text) if file is None else ManifestError(file, problems)
    return checked


def problems_of(
    entries: Iterable[ModelEntry], base_dir: Path, most_bytes: int = DEFAULT_MAX_BYTES
) -> list[Problem]:
    """Return the mistakes in the sources of a campaign file, each with its place, as `check_all` raises them.

    Raises `UsageError` for the first one of an entry without a place.
    """
    problems = []
    for entry in entries:
        try:
            check(entry, base_dir, most_bytes)
        except UsageError as error:
            if entry.place is None:
                raise
            problems.append(Problem(*entry.place, str(error)))
    return problems


def data_source(entry: ModelEntry) -> ModelEntry | None:
    """Return a model's labelled data as an entry of its own: it is checked and fetched as a model is."""
    if entry.data is None:
        return None
    return ModelEntry(f"data of {entry.id}", entry.data.source, entry.data.sha256, place=entry.place)


def check(entry: ModelEntry, base_dir: Path, most_bytes: int, require: Requirement = require_model) -> None:
    """Raise `UsageError` for mistakes that show before fetching: the form, the file, a pinned hash."""
    if (data := data_source(entry)) is not None:
        check(data, base_dir, most_bytes, require_labelled_data)
    scheme, rest = _split(entry.source)
    if scheme == "pypi":
        parse_source(entry.source, entry.platform, entry.python)
    elif scheme == "npm":
        parse_npm(entry.source)
    elif scheme == "https":
        parse_url(entry.source, entry.source)
    elif scheme == "zoo":
        expected = zoo_model(rest).sha256
        if entry.sha256 not in (None, expected):
            raise wrong_hash(entry.source, str(entry.sha256), expected)
    else:
        files.check_file(base_dir / rest, require, entry.sha256, most_bytes)


def _split(source: str) -> tuple[str, str]:
    scheme = scheme_of(source)
    return scheme, source if scheme == "file" else source.removeprefix(f"{scheme}:")


class _Resolver:
    """Holds the downloaded wheels and packages of one submission. All its files are what `require` says."""

    def __init__(
        self, store: Store, base_dir: Path, note: Callable[[str], None], web: Web, require: Requirement
    ) -> None:
        self._store = store
        self._base_dir = base_dir
        self._note = note
        self._web = web
        self._require = require
        self._wheels: dict[Wheel, Path] = {}
        self._packages: dict[Package, IO[bytes]] = {}
        self._unreachable: dict[Wheel | Package, UnreachableError] = {}
        # By sha256: reading a file takes longer than copying it, and campaigns name one in several entries.
        self._read: dict[str, StoredModel] = {}
        self._folders = ExitStack()

    def __enter__(self) -> "_Resolver":
        return self

    def __exit__(self, *_: object) -> None:
        self._folders.close()

    def bring(self, entry: ModelEntry) -> StoredFile:
        """Return the artifact with the pinned hash if the store has it, else what the source gives."""
        found = self._store.find(entry.sha256) if entry.sha256 else None
        found = found or self._fetch(entry)
        # Whatever the store had already may be of another kind: labelled data, or an agent's samples.
        with self._store.open(found.sha256) as file:
            self._require(file, entry.source)
        return found

    def resolve(self, entry: ModelEntry) -> StoredModel:
        found = self.bring(entry)
        if entry.signature is not None:
            found = files.store_signature(self._store, found, entry.signature, entry.source)
        if found.sha256 not in self._read:
            self._read[found.sha256] = self._described(StoredModel("", found.sha256, found.size_bytes, ""))
        return replace(self._read[found.sha256], id=entry.id, origin=entry.source)

    def _described(self, model: StoredModel) -> StoredModel:
        path = self._store.path(model.sha256)
        try:
            graph = load_model(path).subgraphs[0]
        except ValueError as error:
            return replace(model, problem=str(error).removeprefix(f"{path}: "))
        inputs = {graph.tensors[index].name: graph.tensors[index] for index in graph.inputs}
        return replace(model, inputs=inputs, ranges=integer_ranges(graph))

    def _fetch(self, entry: ModelEntry) -> StoredFile:
        scheme, rest = _split(entry.source)
        if scheme == "pypi":
            return self._from_wheel(entry)
        if scheme == "npm":
            return self._from_package(entry)
        if scheme == "https":
            self._note(f"downloading {entry.source}")
            with self._web.open(entry.source, self._store.max_bytes, entry.source) as body:
                return self._store.put(body, entry.source, entry.sha256, self._require)
        if scheme == "zoo":
            model = zoo_model(rest)
            self._note(f"restoring {rest}")
            return files.store_skeleton(model.skeleton, self._store, model.sha256, self._require)
        path = self._base_dir / rest
        if path.suffix == files.SKELETON_SUFFIX:
            self._note(f"restoring {path.name}")
            return files.store_skeleton(path, self._store, entry.sha256, self._require)
        return files.store_file(path, self._store, entry.sha256, self._require)

    def _from_wheel(self, entry: ModelEntry) -> StoredFile:
        wheel, member = parse_source(entry.source, entry.platform, entry.python)

        def fetch() -> StoredFile:
            if wheel not in self._wheels:
                folder = self._folders.enter_context(tempfile.TemporaryDirectory(prefix="farm-wheel-"))
                with self._tried_once(wheel):
                    self._wheels[wheel] = download(wheel, Path(folder), self._note)
            with open_member(self._wheels[wheel], member, entry.source) as stream:
                return self._store.put(stream, entry.source, entry.sha256, self._require)

        return self._once(entry, json.dumps([entry.source, entry.platform, entry.python]), fetch)

    def _from_package(self, entry: ModelEntry) -> StoredFile:
        package, member = parse_npm(entry.source)

        def fetch() -> StoredFile:
            if package not in self._packages:
                with self._tried_once(package):
                    archive = download_package(package, self._web, self._store.max_bytes, self._note)
                self._packages[package] = self._folders.enter_context(archive)
            most_bytes = self._store.max_bytes
            with open_packed(self._packages[package], member, entry.source, most_bytes) as stream:
                return self._store.put(stream, entry.source, entry.sha256, self._require)

        return self._once(entry, json.dumps([entry.source, self._web.registry]), fetch)

    @contextmanager
    def _tried_once(self, archive: Wheel | Package) -> Iterator[None]:
        """Guard a download that is not tried again for the next model: each try waits for its time limit."""
        if archive in self._unreachable:
            raise self._unreachable[archive]
        try:
            yield
        except UnreachableError as error:
            self._unreachable[archive] = error
            raise

    def _once(self, entry: ModelEntry, key: str, fetch: Callable[[], StoredFile]) -> StoredFile:
        """Fetch a source once: the content of a published version never changes."""
        # The key holds platform, Python version or registry too: the same source may give other bytes there.
        known = recall(self._store, key)
        if known is not None:
            # `bring` has not found the pinned file in the store: this version has another content.
            if entry.sha256 not in (None, known.sha256):
                raise wrong_hash(entry.source, str(entry.sha256), known.sha256)
            return known
        found = fetch()
        remember(self._store, key, found)
        return found

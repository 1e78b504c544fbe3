"""Objects of pictures, as COCO's instances JSON or as LiteRT's `ObjectDetectionGroundTruth` in text form."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from runtime.errors import DataError
from runtime.measure.accuracy.average_precision import Object


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture's file and objects. `size`: width and height for the boxes, None where one is in shares."""

    file: str
    objects: tuple[Object, ...]
    size: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """The pictures in the order of their ids, and the ids of classes with their names."""

    scenes: tuple[Scene, ...]
    categories: Mapping[int, str]

    def first(self, most: int) -> "GroundTruth":
        """Return the first pictures alone; all of them where `most` is 0."""
        return replace(self, scenes=self.scenes[: most or None])


def read_coco(content: bytes, where: str) -> GroundTruth:
    """Read an instances JSON: `images`, `annotations`, `categories`. Raises `DataError`."""
    try:
        found = json.loads(content)
        categories = {int(one["id"]): str(one.get("name", "")) for one in found["categories"]}
        images = {int(one["id"]): one for one in found["images"]}
        objects: dict[int, list[Object]] = {number: [] for number in images}
        for one in found["annotations"]:
            image, category = int(one["image_id"]), int(one["category_id"])
            if category not in categories:
                raise DataError(
                    f"{where}: annotation {one.get('id')} has the category {category}, which is none of the "
                    f"file's {len(categories)}"
                )
            if image not in images:
                raise DataError(f"{where}: annotation {one.get('id')} is of image {image}, which it lacks")
            left, top, width, height = (float(value) for value in one["bbox"])
            crowd = bool(one.get("iscrowd", 0))
            objects[image].append(Object(category, (left, top, width, height), crowd))
        scenes = tuple(
            Scene(
                str(images[number]["file_name"]),
                tuple(objects[number]),
                (int(images[number]["width"]), int(images[number]["height"])),
            )
            for number in sorted(images)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # It is a ValueError too, and says more.
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where}: no instances JSON of COCO: {type(error).__name__} {error}") from error
    if not scenes:
        raise DataError(f"{where}: it names no image")
    return GroundTruth(scenes, categories)


_Message: TypeAlias = dict[str, list[Any]]

# Behind comments: the name of a message with its brace, a field with its value, or a closing brace.
_TOKEN: Final = re.compile(
    r"\s*(?:#[^\n]*\n\s*)*(?:(?P<name>\w+)\s*(?::\s*)?(?P<open>\{)|(?P<field>\w+)\s*:\s*"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|[^\s{}]+)|(?P<close>\}))"
)


def read_text_proto(content: bytes, where: str) -> GroundTruth:
    """Read what LiteRT's `preprocess_coco_minival` writes, in text form; its boxes are shares of a picture.

    Raises `DataError`.
    """
    try:
        root = _message(content.decode(), where)
        scenes = tuple(
            Scene(str(one["image_name"][0]), tuple(_object(thing) for thing in one.get("objects", ())))
            for one in root["detection_results"]
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{where}: no ObjectDetectionGroundTruth in text form: {type(error).__name__} {error}"
        ) from error
    return GroundTruth(scenes, {thing.category: "" for scene in scenes for thing in scene.objects})


def _message(text: str, where: str) -> _Message:
    """Return a message: its fields, each with all of its values."""
    open_ones: list[_Message] = [{}]
    position, end = 0, len(text.rstrip())
    while position < end:
        token = _TOKEN.match(text, position)
        if token is None or (token["close"] and len(open_ones) == 1):
            rest = text[position:]
            line = text.count("\n", 0, position + len(rest) - len(rest.lstrip())) + 1
            raise DataError(f"{where}: line {line} is no field of a text proto")
        if token["open"]:
            open_ones.append({})
            # The new message is in its parent at once, and is filled until its brace closes.
            open_ones[-2].setdefault(token["name"], []).append(open_ones[-1])
        elif token["close"]:
            open_ones.pop()
        else:
            value = token["value"]
            made: Any = json.loads(value) if value.startswith('"') else float(value)
            open_ones[-1].setdefault(token["field"], []).append(made)
        position = token.end()
    if len(open_ones) > 1:
        raise DataError(f"{where}: it ends within a message")
    return open_ones[0]


def _object(thing: _Message) -> Object:
    box = thing["bounding_box"][0]
    top, bottom, left, right = (
        float(box.get(f"normalized_{side}", [0.0])[0]) for side in ("top", "bottom", "left", "right")
    )
    return Object(int(thing["class_id"][0]), (left, top, right - left, bottom - top))

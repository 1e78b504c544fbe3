"""Data sets: what makes a task of a model, and what is refused with the file and the reason."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from flatbuffers import Builder as FlatBuilder
from PIL import Image

from runtime.errors import DataError, ModelFormatError
from runtime.measure.accuracy.answers import Answers, read_answers
from runtime.measure.accuracy.data import Data, make_task
from runtime.measure.accuracy.ground_truth import read_coco, read_text_proto
from runtime.measure.accuracy.scores import Change, difference, scores
from runtime.model.facts import picture_normalisation
from runtime.model.graph import Model

CLASSIFIER = [{"name": "y", "shape": [1, 4], "dtype": np.float32, "quantization": (0.0, 0)}]
PICTURE = [{"name": "x", "shape": [1, 8, 8, 3], "dtype": np.float32, "quantization": (0.0, 0)}]
DETECTOR = [
    {"name": name, "shape": shape, "dtype": np.float32, "quantization": (0.0, 0)}
    for name, shape in (("boxes", [1, 2, 4]), ("classes", [1, 2]), ("scores", [1, 2]), ("count", [1]))
]
COCO = {
    "images": [{"id": 7, "file_name": "b.png", "width": 20, "height": 10}],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    "annotations": [{"id": 5, "image_id": 7, "category_id": 2, "bbox": [2, 1, 10, 5], "iscrowd": 0}],
}


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, level in (("a.png", 10), ("b.png", 20), ("c.jpg", 30)):
        Image.new("RGB", (20, 10), (level, level, level)).save(folder / name)
    (folder / "ground_truth.txt").write_text("cat\ndog\ncat\n")
    (folder / "labels.txt").write_text("none\ncat\ndog\ncat\n")
    return folder


def test_every_class_of_a_label_is_right(pictures):
    task = make_task(Data(pictures), None, PICTURE, CLASSIFIER)
    samples = list(task.samples(0))
    assert [(s.name, sorted(s.truth)) for s in samples] == [
        ("a.png", [1, 3]),
        ("b.png", [2]),
        ("c.jpg", [1, 3]),
    ]
    values = np.array([[0.5, 0.1, 0.5, 0.2]], np.float32)
    answers = [task.answer(sample, [values]) for sample in samples]
    assert answers[0]["best"] == [0, 2, 3]
    assert [answer["rank"] for answer in answers] == [2, 1, 2]
    assert [(s.metric, s.right) for s in scores(task.head, answers)] == [
        ("top1", 0),
        ("top2", 1),
        ("top3", 3),
    ]
    assert [s.name for s in task.samples(2)] == ["c.jpg"]


def test_a_label_may_be_the_number_of_its_class_and_a_denylist_counts_from_one(pictures):
    (pictures / "labels.txt").unlink()
    (pictures / "ground_truth.txt").write_text("1\n2\n3\n")
    task = make_task(Data(pictures, most=1, left_out=frozenset({1})), None, PICTURE, CLASSIFIER)
    assert [(s.name, s.truth) for s in task.samples(0)] == [("b.png", {2})]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ground_truth.txt": "cat\ndog\n"}, r"ground_truth.txt: 2 labels; .*pictures has 3 pictures"),
        ({"ground_truth.txt": "cat\ncow\ncat\n"}, r"b\.png: its label 'cow' is none of the model's"),
        ({"labels.txt": "cat\ndog\n"}, r"labels.txt: 2 labels; the model has 4 classes"),
        ({"ground_truth.txt": None}, r"neither instances.json nor ground_truth.txt"),
        ({"a.png": "text"}, r"a\.png: no JPEG or PNG"),
        ({"labels.txt": b"\xff\xfe"}, r"labels.txt: no text in UTF-8"),
    ],
)
def test_a_data_set_with_a_mistake_is_refused_with_the_file_and_the_reason(pictures, change, said):
    for name, content in change.items():
        if content is None:
            (pictures / name).unlink()
        else:
            (pictures / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=said):
        list(make_task(Data(pictures), None, PICTURE, CLASSIFIER).samples(0))


@pytest.mark.parametrize(
    ("outputs", "metric", "said"),
    [
        (DETECTOR, None, "the model is no classifier: it has 4 outputs"),
        ([{**CLASSIFIER[0], "shape": [1, 8, 8, 4]}], None, "the model is no classifier"),
        (CLASSIFIER, "top4", "top4 of a model with 4 classes: every answer would be right"),
        (CLASSIFIER, "mAP", "the metric 'mAP' is not of this data: top1"),
    ],
)
def test_a_model_or_a_metric_that_does_not_fit_is_refused(pictures, outputs, metric, said):
    with pytest.raises(DataError, match=said):
        make_task(Data(pictures, metric=metric), None, PICTURE, outputs)


def detections(boxes, classes, values):
    return [np.array([a], np.float32) for a in (boxes, classes, values)] + [
        np.array([len(values)], np.float32)
    ]


def test_a_detectors_boxes_are_those_of_the_picture_and_of_the_category(pictures):
    (pictures / "instances.json").write_text(json.dumps(COCO))
    task = make_task(Data(pictures), None, PICTURE, DETECTOR)
    (sample,) = task.samples(0)
    answer = task.answer(sample, detections([[0.1, 0.1, 0.6, 0.6], [0, 0, 1, 1]], [1, 0], [0.9, 0.2]))
    (right, false) = sorted(answer["found"], key=lambda entry: -entry[1])
    assert right[0] == 2
    assert right[2:4] == [0b1111111111, 0]
    np.testing.assert_allclose(right[4:], [2, 1, 10, 5], rtol=1e-6)
    assert false[2] == 0
    whole = scores(task.head, [answer])[0]
    assert (whole.metric, whole.value) == ("mAP", pytest.approx(1.0))


def test_a_detector_that_finds_nothing_of_a_picture_is_judged_all_the_same(pictures):
    (pictures / "instances.json").write_text(json.dumps(COCO))
    task = make_task(Data(pictures), None, PICTURE, DETECTOR)
    (sample,) = task.samples(0)
    answer = task.answer(sample, detections([[0.9, 0.9, 1, 1]], [1], [0.9]))
    assert scores(task.head, [answer])[0].value == 0.0


def test_a_class_offset_that_cannot_be_right_is_refused(pictures):
    image = COCO["images"][0]
    objects = [{**COCO["annotations"][0], "id": i, "image_id": i} for i in range(6)]
    many = {"images": [{**image, "id": i} for i in range(6)], "annotations": objects}
    (pictures / "instances.json").write_text(json.dumps({**COCO, **many}))
    outputs = detections([[0.1, 0.1, 0.6, 0.6], [0, 0, 1, 1]], [2, 0], [0.9, 0.2])

    def answered(offset):
        task = make_task(Data(pictures, class_offset=offset), None, PICTURE, DETECTOR)
        return scores(task.head, [task.answer(sample, outputs) for sample in task.samples(0)])

    with pytest.raises(DataError, match=r"class offset 1: of 5 .* 0 have its class, and 5 would with 0"):
        answered(1)
    assert answered(0)[0].value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"annotations": [{**COCO["annotations"][0], "category_id": 9}]}, "annotation 5 has the category 9"),
        ({"annotations": [{**COCO["annotations"][0], "image_id": 8}]}, "annotation 5 is of image 8"),
        ({"annotations": [{"id": 5, "image_id": 7, "category_id": 2}]}, "no instances JSON of COCO: .*bbox"),
        ({"images": []}, "annotation 5 is of image 7, which it lacks"),
        ({"images": [], "annotations": []}, "it names no image"),
    ],
)
def test_a_wrong_instances_file_is_refused_with_the_entry(change, said):
    with pytest.raises(DataError, match=f"i.json: {said}"):
        read_coco(json.dumps({**COCO, **change}).encode(), "i.json")


def test_pictures_that_the_truth_names_must_be_there_and_of_its_size(pictures):
    def task(image):
        (pictures / "instances.json").write_text(
            json.dumps({**COCO, "images": [{**COCO["images"][0], **image}]})
        )
        return make_task(Data(pictures), None, PICTURE, DETECTOR)

    with pytest.raises(DataError, match=r"z\.png: there is no such file, and the truth names it"):
        task({"file_name": "z.png"})
    with pytest.raises(DataError, match=r"b\.png: it has 20x10 pixels; the truth says \(20, 11\)"):
        list(task({"height": 11}).samples(0))
    with pytest.raises(DataError, match="the model is no detector"):
        make_task(Data(pictures), None, PICTURE, CLASSIFIER)


def test_litert_s_text_proto_is_read():
    found = read_text_proto(
        b"""# made by hand
        detection_results {
          objects { class_id: 17 bounding_box { normalized_top: 0.25 normalized_bottom: 0.5
                    normalized_left: 0.1 normalized_right: 0.4 } }
          image_name: "0001.jpg" image_id: 1
        }
        detection_results { image_name: "0002.jpg" }""",
        "truth",
    )
    (first, second) = found.scenes
    assert (first.file, second.file, second.objects) == ("0001.jpg", "0002.jpg", ())
    assert first.objects[0].category == 17
    np.testing.assert_allclose(first.objects[0].box, [0.1, 0.25, 0.3, 0.25])
    with pytest.raises(DataError, match="truth: line 2 is no field"):
        read_text_proto(b"detection_results {\n  ! }", "truth")
    with pytest.raises(DataError, match="ends within a message"):
        read_text_proto(b"detection_results {", "truth")


def test_arrays_are_compared_by_the_named_metric(tmp_path):
    x, y = np.ones((3, 1, 4), np.float32), np.array([[1, 2, 3, 4]] * 3, np.float32)
    np.savez(tmp_path / "in.npz", inputs=x)
    np.savez(tmp_path / "out.npz", outputs=y)
    inputs = [{**CLASSIFIER[0], "name": "x"}]
    data = Data(tmp_path / "in.npz", tmp_path / "out.npz", metric="mae")
    task = make_task(data, None, inputs, CLASSIFIER)
    made = [task.answer(s, [s.truth[0][None] + n]) for n, s in enumerate(task.samples(0))]
    (found,) = scores(task.head, made)
    assert (found.metric, found.value, found.samples) == ("mae", 1.0, 3)
    against = difference(task.head, "mae", made, [{**one, "value": one["value"] + 0.5} for one in made])
    assert (against.value, against.interval, against.changed) == (0.5, (0.5, 0.5), 3)
    with pytest.raises(DataError, match="the metric 'dice' is not of this data: mae"):
        make_task(replace(data, metric="dice"), None, inputs, CLASSIFIER)
    np.savez(tmp_path / "out.npz", outputs=y[:2])
    with pytest.raises(DataError, match="'inputs' has 3, 'outputs' has 2"):
        make_task(data, None, inputs, CLASSIFIER)


def test_answers_go_on_where_they_were_cut_and_other_ones_are_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    first = Answers(path, {"model": "m"})
    for number in range(3):
        first.add({"file": str(number)})
    first.close()
    path.write_bytes(path.read_bytes()[:-4])
    again = Answers(path, {"model": "m"})
    assert again.count == 2
    again.add({"file": "new"})
    again.close()
    assert [answer["file"] for answer in read_answers(path)] == ["0", "1", "new"]
    with pytest.raises(DataError, match="the answers of another model"):
        Answers(path, {"model": "n"})


def test_a_pair_of_the_same_samples_is_compared_and_changed_answers_are_listed():
    def answer(file, best, rank):
        return {"file": file, "best": best, "rank": rank}

    head = {"task": "classification", "best": 3}
    first = [
        answer("a", [1, 2], 0),
        answer("b", [1, 2], 0),
        answer("c", [1, 2], None),
        answer("d", [1, 2], 1),
    ]
    second = [answer("a", [1, 2], 0), answer("b", [2, 1], 1), answer("c", [2, 1], 0), answer("d", [2, 1], 0)]
    found = difference(head, "top1", first, second)
    assert (found.gained, found.lost, found.value, found.changed) == (2, 1, 0.25, 3)
    assert found.changes[0] == Change("b", "class 1 (right)", "class 2 (wrong)")
    assert difference(head, "top2", first, second).gained == 1
    with pytest.raises(DataError, match="answered more than the 3 samples"):
        difference(head, "top1", first, second[:3])
    with pytest.raises(DataError, match="not to the same samples: a and d"):
        difference(head, "top1", first, second[::-1])


def metadata(mean, std, kind=1):
    """Return TFLite's metadata with one normalisation, by the numbers of metadata_schema.fbs."""
    b = FlatBuilder(0)

    def vector(values, add):
        b.StartVector(4, len(values), 4)
        for value in reversed(values):
            add(value)
        return b.EndVector()

    def table(fields, slots):
        b.StartObject(slots)
        for slot, add in fields:
            add(slot)
        return b.EndObject()

    means, stds = vector(mean, b.PrependFloat32), vector(std, b.PrependFloat32)
    offset = lambda target: lambda slot: b.PrependUOffsetTRelativeSlot(slot, target, 0)  # noqa: E731
    options = table([(0, offset(means)), (1, offset(stds))], 2)
    unit = table([(0, lambda slot: b.PrependUint8Slot(slot, kind, 0)), (1, offset(options))], 2)
    tensor = table([(4, offset(vector([unit], b.PrependUOffsetTRelative)))], 6)
    graph = table([(2, offset(vector([tensor], b.PrependUOffsetTRelative)))], 4)
    b.Finish(table([(3, offset(vector([graph], b.PrependUOffsetTRelative)))], 8), b"M001")
    return bytes(b.Output())


def test_the_metadata_says_how_a_picture_is_normalised():
    def model(content):
        return Model(3, "", (), metadata={"TFLITE_METADATA": content})

    assert picture_normalisation(model(metadata([1.0, 2.0, 3.0], [4.0]))) == ((1.0, 2.0, 3.0), (4.0,))
    assert picture_normalisation(model(metadata([1.0], [4.0], kind=2))) is None
    assert picture_normalisation(Model(3, "", ())) is None
    with pytest.raises(ModelFormatError):
        picture_normalisation(model(metadata([1.0], [0.0])))

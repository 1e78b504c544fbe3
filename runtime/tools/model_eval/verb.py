"""`farm model eval`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from runtime.tools.calls import Json, Shapes, answer, clear_errors, delegate_of, progress, refuse, rules_of

EXAMPLES: Final = (
    "farm model eval my.tflite --data pictures.zip --truth labels_of_pictures.txt --labels labels.txt",
    "farm model eval my.tflite --data pictures --delegate cpu --delegate gpu:precision=fp16 --max-drop 0.01",
    "farm model eval ssd.tflite --data val2017 --truth instances_val2017.json --page ssd.html",
    "farm model eval net.tflite net_int8.tflite --data tensors.npz --metric cosine --json",
)


def evaluate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The variants of a network.")],
    data: Annotated[Path, typer.Option(help="Pictures in a folder, .tar or .zip; or arrays in a .npz.")],
    truth: Annotated[
        Path | None,
        typer.Option(
            help="A label a line in the order of the pictures' names; objects as COCO's instances (.json) or "
            "LiteRT's text proto (.pbtxt); wanted outputs (.npz). Left out: ground_truth.txt or "
            "instances.json beside the pictures."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="The labels of the model's classes. Left out: labels.txt, or their numbers."),
    ] = None,
    delegate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:OPTION=VALUE,...]", help="A delegate; repeatable. Default: litert, gpu."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The chief figure: top1 to top10; of a .npz with outputs mae, rmse, max_abs, "
            "cosine or equal."
        ),
    ] = None,
    class_offset: Annotated[
        int, typer.Option(help="What is added to a detector's class to have the category's id; checked.")
    ] = 1,
    mean: Annotated[
        str | None,
        typer.Option(metavar="X[,X,X]", help="Mean of pixels; by default the metadata's or 127.5."),
    ] = None,
    std: Annotated[
        str | None, typer.Option(metavar="X[,X,X]", help="Deviation of pixels; by default as the mean.")
    ] = None,
    shape: Shapes = None,
    samples: Annotated[int, typer.Option(min=0, help="Samples at most; 0 is all.")] = 0,
    max_drop: Annotated[
        float | None,
        typer.Option(min=0, help="The drop from the first variant that is allowed, by the whole interval."),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="Folder of the answers, from which a later call goes on. Default: FILE.eval here."),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write a page of HTML here.")] = None,
    as_json: Json = False,
) -> int:
    """Evaluate models on labelled data: classification, detection or tensors, paired between delegates.

    Every file runs on every delegate, each in a process of its own, on the same samples; the first is what
    the others are compared with. Times are of this pass: compare speed with `farm submit`.
    Exit code: 0 every variant has a score, 1 one has failed or drops by more than is allowed.
    """
    from runtime.measure.accuracy.data import Data
    from runtime.tools.model_diff.running import Setting
    from runtime.tools.model_eval import printed
    from runtime.tools.model_eval.variants import evaluate_all, variants_of

    with clear_errors(files[0]):
        settings = [(text, Setting.of(*delegate_of(text))) for text in delegate or ["litert", "gpu"]]
        pixels = _numbers("--mean", mean), _numbers("--std", std)
        asked = Data(data, truth, labels, metric, class_offset, *pixels, samples)
        folder = answers or answers_folder(files)
        shapes = {name: rule.shape for name, rule in rules_of([], shape or []).items() if rule.shape}
        variants, say = variants_of(files, settings), progress()
        found = evaluate_all(
            variants, asked, folder, max_drop,
            lambda name, done, count: say(f"{name}: {done} of {count} samples ..."), shapes,
        )  # fmt: skip
        if page is not None:
            text = printed.page(found, ", ".join(file.name for file in files), max_drop)
            page.write_text(text, encoding="utf-8")
    answer(printed.document(found, max_drop), printed.lines(found, max_drop), as_json)
    if any(one.why_not or one.verdict == "fail" for one in found):
        raise typer.Exit(1)
    return 0


def answers_folder(files: list[Path]) -> Path:
    """Return where the answers are kept, unless the user says so."""
    return Path(f"{files[0].stem}.eval")


def _numbers(flag: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        refuse(f"{flag} {text!r} is not one number or three, as 123.7,116.3,103.5")

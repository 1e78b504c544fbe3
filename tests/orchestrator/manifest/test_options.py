"""The options that a campaign file and its documentation know are those of the delegates."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import pytest

from runtime.delegates.gpu.settings.options import Options, parse_options
from runtime.delegates.registry import delegate_descriptor
from tests.orchestrator.manifest.manifests import DOCUMENT, MINIMAL, load


def test_the_options_that_a_file_may_use_are_those_of_the_delegates(tmp_path: Path) -> None:
    def accepted(line: str) -> dict[str, object]:
        (entry,) = load(tmp_path, MINIMAL.replace("cpu: {kind: cpu}", line)).delegates
        return dict(entry.options)

    farms_own = {"device", "cache_dir", "serialization_dir", "model_token"} | {
        "context",
        "wait_type",
        "excluded_operators",
        "conformance",
        "kept_plans",
    }
    given = accepted(
        "x: {kind: gpu, backend: vulkan, threads: 2, precision: fp32, precision_loss_allowed: true, "
        "require_narrow_products: false, "
        "weights: stored, rounding: xnnpack, tuning: none, choices: 0123456789ab=rows, persistent: off, "
        "device_class: auto, memory: least, passes_off: fuse_swish, "
        "max_delegated_partitions: 3, min_nodes_per_partition: 2, first_delegate_node_index: 0, "
        "cost_aware_partitioning: false, enable_quantization: false, deadline_ms: 500, "
        "last_delegate_node_index: 9, require_full_delegation: true}"
    )
    assert given.keys() == {field.name for field in fields(Options)} - farms_own
    assert asdict(parse_options(given)).items() >= given.items()
    given = accepted("x: {kind: litert, threads: 2, api: compiled_model, force_fp16: true}")
    assert delegate_descriptor("litert").parse(given).items() >= given.items()


@pytest.mark.parametrize("kind", ["cpu", "gpu", "litert", "litert-gpu", "openvino"])
def test_the_table_of_options_is_what_the_descriptors_declare(kind: str) -> None:
    declared = [
        f"| `{kind}` | `{name}` | {option.values} | {_shown(option.default)} | {option.help} |"
        for name, option in delegate_descriptor(kind).options.items()
    ]
    assert [line for line in DOCUMENT.splitlines() if line.startswith(f"| `{kind}` |")] == declared


def _shown(default: object) -> str:
    return "" if default is None else str(default).lower()

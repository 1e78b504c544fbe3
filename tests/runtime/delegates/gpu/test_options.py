import pytest

from runtime.delegates.gpu.options import Options, parse_options
from runtime.errors import DelegateError


def test_no_options_are_the_defaults():
    assert parse_options(None) == parse_options({}) == Options()
    assert Options().max_delegated_partitions == 1


def test_texts_of_a_command_line_are_understood():
    given = {"threads": "2", "require_full_delegation": "true", "device": "1", "tuning": "none"}
    options = parse_options(given)
    assert (options.threads, options.require_full_delegation, options.device, options.tuning) == (
        2,
        True,
        1,
        "none",
    )


def test_unknown_option_names_the_nearest():
    with pytest.raises(DelegateError, match=r"unknown option 'tunning'; did you mean 'tuning'"):
        parse_options({"tunning": "fast"})
    with pytest.raises(DelegateError, match=r"unknown option 'zzz'; known: .*precision.*tuning"):
        parse_options({"zzz": 1})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("precision", "int4", "must be one of fp32, fp16, bf16, int8; got 'int4'"),
        ("tuning", "slow", "must be one of none, fast, exhaustive; got 'slow'"),
        ("threads", 0, "whole number of at least 1, got 0"),
        ("threads", "two", "whole number of at least 1, got 'two'"),
        ("threads", True, "whole number of at least 1, got True"),
        ("max_delegated_partitions", "-1", "whole number of at least 1"),
        ("min_nodes_per_partition", 0, "whole number of at least 1"),
        ("last_delegate_node_index", -1, "whole number of at least 0"),
        ("require_full_delegation", "maybe", "must be true or false, got 'maybe'"),
        ("device", 1.5, "must be a device's name, id or index, got 1.5"),
        ("cache_dir", 3, "must be a text, got 3"),
    ],
)
def test_a_value_that_is_not_allowed_is_an_error(name, value, text):
    with pytest.raises(DelegateError, match=text):
        parse_options({name: value})


def test_a_lossy_precision_contradicts_a_loss_that_is_forbidden():
    with pytest.raises(DelegateError, match="precision 'bf16' rounds weights, which precision_loss_allowed="):
        parse_options({"precision": "bf16", "precision_loss_allowed": False})
    assert parse_options({"precision": "fp32", "precision_loss_allowed": "true"}).precision == "fp32"


def test_litert_s_name_of_an_option_is_understood():
    assert parse_options({"is_precision_loss_allowed": 1}).precision_loss_allowed is True

"""A delegate's descriptor: what its options allow, and how a wrong one is answered."""

from __future__ import annotations

import math

import pytest

from runtime.delegates.descriptor import DelegateDescriptor, Option, threads_option
from runtime.errors import DelegateError

DESCRIPTOR = DelegateDescriptor(
    name="mine",
    implementation="nowhere:Nothing",
    options={
        "threads": threads_option(),
        "depth": Option(value_type=int, minimum=1, maximum=8, default=2, help="How deep."),
        "ratio": Option(value_type=float, minimum=0, help="How much."),
        "mode": Option(value_type=str, choices=("calm", "eager"), default="calm", help="How."),
        "note": Option(value_type=str, help="What for."),
        "strict": Option(value_type=bool, default=False, help="How exactly."),
    },
)


def test_options_are_completed_by_their_defaults():
    assert DESCRIPTOR.parse({"ratio": 1, "mode": "eager", "strict": True}) == {
        "threads": None, "depth": 2, "ratio": 1, "mode": "eager", "note": None, "strict": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dept": 1}, "unknown option 'dept' (did you mean 'depth'?); it takes depth, mode, note, ratio"),
        ({"zzz": 1}, "unknown option 'zzz'; it takes depth"),
        ({"depth": 0}, "expected a whole number at least 1 and at most 8, got 0"),
        ({"depth": 9}, "expected a whole number at least 1 and at most 8, got 9"),
        ({"depth": True}, "got True"),
        ({"depth": "2"}, "got '2'"),
        ({"depth": 2.0}, "got 2.0"),
        ({"ratio": -0.1}, "expected a number at least 0, got -0.1"),
        ({"ratio": math.nan}, "expected a number at least 0, got nan"),
        ({"mode": "lazy"}, "expected calm or eager, got 'lazy'"),
        ({"note": 3}, "expected a text, got 3"),
        ({"strict": 1}, "expected true or false, got 1"),
        ({"threads": 1025}, "expected a whole number at least 1 and at most 1024, got 1025"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(given, said):
    with pytest.raises(DelegateError) as caught:
        DESCRIPTOR.parse(given)
    assert str(caught.value).startswith("mine: ")
    assert said in str(caught.value)


def test_a_delegate_without_options_says_so():
    with pytest.raises(DelegateError, match="it takes no options"):
        DelegateDescriptor(name="mine", implementation=None).parse({"depth": 1})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"value_type": int, "choices": ("1", "2")}, "value_type must be str"),
        ({"value_type": str, "minimum": 1}, "value_type must be int or float"),
        ({"value_type": int, "minimum": 1, "default": 0}, "the default does not fit its own option"),
    ],
)
def test_an_option_that_contradicts_itself_is_refused_where_it_is_declared(fields, said):
    with pytest.raises(ValueError, match=said):
        Option(help="Odd.", **fields)


@pytest.mark.parametrize(("default", "said"), [(None, "by default all of them."), (1, "process may use.")])
def test_threads_say_what_happens_without_a_value(default, said):
    option = threads_option(default)
    assert option.default == default
    assert option.help.endswith(said)

from runtime.delegates.gpu.source import assemble, function_of
from tests.runtime.delegates.gpu.models import launch


def test_equal_functions_are_compiled_once_and_others_get_names_of_their_own(backend):
    source = assemble([launch(), launch(), launch(TAIL=1)], backend.capabilities)
    assert len(source.names) == 2
    assert len(set(source.names.values())) == 2
    assert all(name.startswith("f32_reshape_copy") for name in source.names.values())
    assert source.text.count('#line 1 "movement/reshape.cl"') == 2
    assert sorted(source.numbers.values()) == [0, 1]


def test_a_function_knows_which_pointers_are_constant():
    assert function_of(launch()).spaces == "AA"

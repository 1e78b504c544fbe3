from runtime.delegates.gpu.layout.source import assemble, function_of
from tests.runtime.delegates.gpu.models import launch


def test_equal_functions_are_compiled_once_and_others_get_names_of_their_own(backend):
    source = assemble([launch(), launch(), launch(TAIL=1)], backend.capabilities)
    assert len(source.names) == 2
    assert len(set(source.names.values())) == 2
    assert all(name.startswith("f32_reshape_copy") for name in source.names.values())
    assert ['#line 1 "movement/reshape.cl"' in kernel.text for kernel in source.kernels] == [True, True]
    assert sorted(source.numbers.values()) == [0, 1]


def test_the_text_of_a_kernel_depends_on_nothing_else_in_the_partition(backend):
    alone = assemble([launch(TAIL=1)], backend.capabilities)
    among_others = assemble([launch(), launch(TAIL=1)], backend.capabilities)
    assert among_others.kernels[1] == alone.kernels[0]


def test_a_function_knows_which_pointers_are_constant():
    assert function_of(launch()).spaces == "AA"

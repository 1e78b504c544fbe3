"""What LiteRT's documents promise of a GPU delegate, row by row, and the tests that hold ours to it.

The rows are those of our list of LiteRT's promises on coverage, partitions, precision, quantised models and
start-up. `lacks` says what of a row no test holds, because the delegate does not have it.
"""

from __future__ import annotations

from dataclasses import dataclass

HERE = "tests/runtime/delegates/gpu/"
PARTITION = "tests/runtime/test_partition.py::"
COST = "tests/runtime/test_cost_aware_partitions.py::"
COMPILED = "tests/runtime/api/test_compiled_model.py::"
SPECIAL = "tests/runtime/ops/test_special_values.py::"
INFO = "tests/runtime/tools/test_model_info.py::"
QUANTISED = "tests/models/test_quantised_models.py::"
FALLBACK = HERE + "test_fallback.py::"
DELEGATE = HERE + "test_delegate.py::"
PACKED = HERE + "test_packed_file.py::"
LIBRARY = HERE + "test_library.py::"


@dataclass(frozen=True)
class Promise:
    """One row: the promise, the tests as `path::function`, and what is not there."""

    row: int
    text: str
    tests: tuple[str, ...] = ()
    lacks: str = ""


PROMISES = (
    Promise(
        19,
        "The operators of the GPU delegate's documents run.",
        (
            HERE + "test_promises.py::test_the_operators_of_litert_s_documents_have_kernels",
            SPECIAL + "test_special_values_are_those_of_litert",
            SPECIAL + "test_every_operator_that_the_delegate_takes_has_a_case",
        ),
        lacks="every operator in half precision",
    ),
    Promise(
        20,
        "So do those of the lists of both GPU delegates, with composites.",
        (
            HERE + "test_promises.py::test_few_operators_of_litert_s_lists_lack_kernels",
            HERE + "test_composites.py::test_a_composite_runs_whole_on_the_delegate",
        ),
        lacks="the operators that the test names",
    ),
    Promise(
        21,
        "Versions, types and shapes are checked; the reasons are a text in LiteRT's layout, and JSON.",
        (
            DELEGATE + "test_a_version_that_is_newer_than_the_rules_is_refused_in_the_words_of_litert",
            DELEGATE + "test_a_type_that_an_operator_does_not_take_is_refused_with_the_tensor",
            DELEGATE + "test_refusals_name_what_is_wrong",
            PARTITION + "test_the_text_has_the_layout_of_litert",
            INFO + "test_each_operator_that_stays_on_the_cpu_is_listed_with_the_reason",
        ),
    ),
    Promise(
        22,
        "What has no kernel runs on the CPU with equal results; the warning never raises.",
        (
            FALLBACK + "test_an_operator_in_the_middle_runs_on_the_cpu_with_litert_s_warning",
            FALLBACK + "test_operators_without_results_stay_on_the_cpu",
            COST + "test_a_small_group_that_cuts_a_large_partition_up_stays_on_the_cpu",
        ),
    ),
    Promise(
        23,
        "Most partitions (1 by default), the smallest partition, a window of operators, clustering, fusion.",
        (
            PARTITION + "test_the_largest_partition_is_kept_and_the_rest_falls_back",
            PARTITION + "test_more_partitions_where_the_delegate_allows_them",
            PARTITION + "test_a_partition_smaller_than_the_delegate_wants_stays_on_the_cpu",
            DELEGATE + "test_operators_outside_the_window_stay_on_the_cpu_with_the_reason",
            PARTITION + "test_grouping_switches",
            PARTITION + "test_the_interpreter_passes_the_switches_on",
        ),
    ),
    Promise(
        24,
        "Where full delegation is required, a fallback is an error in LiteRT's words.",
        (
            PARTITION + "test_full_delegation_can_be_required",
            FALLBACK + "test_where_full_delegation_is_required_a_failed_build_is_an_error",
        ),
    ),
    Promise(
        25,
        "Of several delegates each chooses from what the earlier ones left.",
        (PARTITION + "test_two_delegates_take_parts_of_one_model",),
        lacks="several delegates in one row of a campaign",
    ),
    Promise(
        26,
        "A delegate that fails while it is applied leaves the original plan, with a report.",
        (
            FALLBACK + "test_a_partition_whose_build_fails_runs_on_the_cpu_and_the_report_says_why",
            FALLBACK + "test_a_defect_of_a_lowering_leaves_the_model_to_the_cpu_and_the_report_says_so",
            HERE + "test_device_memory.py::test_what_has_no_room_runs_on_the_cpu_with_the_reason",
            PARTITION + "test_a_failing_delegate_leaves_the_last_plan_in_place",
            PARTITION + "test_a_failed_partition_is_logged_as_litert_does",
        ),
    ),
    Promise(
        27,
        "A device is chosen by platform, name, index or kind; where there is no OpenCL, a text explains it.",
        (
            HERE + "test_device.py::test_a_device_is_found_by_index_and_by_part_of_its_name",
            HERE + "test_device.py::test_an_absent_device_is_an_error_that_lists_what_there_is",
            HERE + "test_device.py::test_without_any_opencl_the_error_says_what_to_install",
        ),
    ),
    Promise(
        28,
        "Options are checked, with their defaults, also as texts.",
        (
            HERE + "test_options.py::test_no_options_are_the_defaults",
            HERE + "test_options.py::test_texts_of_a_command_line_are_understood",
            HERE + "test_options.py::test_unknown_option_names_the_nearest",
            HERE + "test_options.py::test_a_value_that_is_not_allowed_is_an_error",
        ),
        lacks="inference priorities and their combinations",
    ),
    Promise(
        29,
        "Precisions follow from what is asked and what the device can; the one in force is recorded.",
        (
            HERE + "test_precision.py::test_the_probe_is_right_about_this_device_and_is_remembered",
            HERE + "test_precision.py::test_what_is_asked_for_is_used_or_refused_with_the_reason",
            HERE + "test_precision.py::test_results_stay_within_the_tolerance_in_half_the_memory",
        ),
        lacks="half precision in arithmetic",
    ),
    Promise(30, "The usage changes tuning and kernels and not results.", lacks="an option for the usage"),
    Promise(
        31,
        "8-bit models run on real numbers with simulated quantisation, unless that is switched off.",
        (
            QUANTISED + "test_an_8_bit_model_agrees_with_litert",
            QUANTISED + "test_with_quantisation_off_nothing_is_taken_and_the_reason_names_the_option",
        ),
    ),
    Promise(
        32,
        "A second start compiles and tunes nothing; what does not fit any more is made anew.",
        (
            LIBRARY + "test_a_new_process_finds_everything_on_disk_and_replaces_what_does_not_load",
            HERE + "test_cache.py::test_a_damaged_entry_is_removed_and_counts_as_absent",
            HERE + "test_cache.py::test_the_folder_and_its_files_are_closed_to_others",
            HERE + "test_cache.py::test_eight_processes_share_a_folder",
            HERE + "test_tuning.py::test_the_measured_winner_is_taken_and_remembered",
            PACKED + "test_the_next_start_packs_nothing_and_maps_the_file",
            PACKED + "test_a_file_that_is_not_what_was_written_is_made_anew",
        ),
        lacks="the share of a cold start that a warm one may take",
    ),
    Promise(
        33,
        "A token is a fingerprint of the model's bytes.",
        (
            PACKED + "test_the_token_is_a_hash_of_the_bytes_and_known_as_long_as_the_file_stays_as_it_is",
            PACKED + "test_another_model_gets_its_own_weights_even_under_the_same_token",
        ),
    ),
    Promise(
        34,
        "A model runs at another batch without a compile.",
        (
            HERE + "test_sharing.py::test_a_resized_input_compiles_nothing",
            HERE + "test_memory.py::test_a_few_cycles_leave_nothing_behind",
        ),
        lacks="plans that are kept for each batch",
    ),
    Promise(35, "Ways to wait.", lacks="the option"),
    Promise(36, "Buffers of the caller are bound.", lacks="device buffers of the caller"),
    Promise(
        37,
        "A graph runs from another thread, and two at once.",
        (DELEGATE + "test_two_graphs_with_persistent_kernels_run_from_two_threads",),
    ),
    Promise(38, "The cost of odd counts of channels is measured.", lacks="the table"),
    Promise(
        39,
        "Passes change the graph and not its outputs.",
        (
            HERE + "test_networks.py::test_network_matches_the_cpu_path_and_is_fully_delegated",
            HERE + "test_passes.py::test_reshape_to_the_same_shape_disappears",
            HERE + "test_canonicalise.py::test_a_split_is_a_slice_for_each_output",
        ),
        lacks="a switch for each",
    ),
    Promise(
        40,
        "Element-wise operators are fused, which leaves fewer kernels.",
        (HERE + "test_passes.py::test_elementwise_chain_moves_into_the_kernel_before_it",),
    ),
    Promise(
        41,
        "Every candidate of a layer computes the same, and the rules that rank them hold.",
        (
            HERE + "test_networks.py::test_every_candidate_of_every_layer_computes_the_same",
            HERE + "test_conv_lowering.py::test_winograd_gives_the_sums_of_a_plain_convolution",
            HERE + "test_conv_lowering.py::test_tiles_are_ranked_by_cost_and_fit",
        ),
    ),
    Promise(
        42,
        "Tuning is fast or exhaustive, and remembered.",
        (
            HERE + "test_tuning.py::test_the_measured_winner_is_taken_and_remembered",
            HERE + "test_tuning.py::test_without_tuning_the_first_candidate_is_taken_and_nothing_is_written",
        ),
    ),
    Promise(
        43,
        "Buffers that live at once share no byte; no kernel leaves its own.",
        (
            "tests/runtime/test_arena.py::test_buffers_that_live_at_once_share_no_byte",
            "tests/runtime/test_arena.py::test_the_arena_is_at_least_the_peak_and_at_most_no_sharing",
            HERE + "test_guard_zones.py::test_layouts_of_every_kind_stay_inside",
        ),
    ),
    Promise(
        44,
        "Compiled kernels are kept under a key of driver, processor and source.",
        (
            HERE + "test_program.py::test_the_key_tells_processors_and_compilers_apart",
            LIBRARY + "test_only_what_the_library_lacks_is_compiled",
        ),
    ),
    Promise(
        45,
        "The profile has a row for each kernel, with its operators, operations and bytes.",
        (DELEGATE + "test_the_profile_has_a_row_for_every_kernel_with_its_operators",),
    ),
    Promise(46, "An operator that a device computes wrongly is not delegated there.", lacks="the gate"),
    Promise(
        48,
        "A GPU alone is an error where it cannot run all; with the CPU the report says what fell back.",
        (
            COMPILED + "test_a_gpu_runs_all_or_shares_with_the_cpu",
            COMPILED + "test_without_the_device_the_cpu_runs_it_and_says_so",
        ),
    ),
)

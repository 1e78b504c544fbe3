"""The promises of LiteRT's documents about a GPU delegate, row by row, and the tests that hold ours to it.

The rows are those of our list of LiteRT's promises on coverage, partitions, precision, quantised models,
start-up, buffers, runs in the background and the Python API. `lacks` says what of a row no test holds: what
is not built, or the device that a test would need.
"""

from __future__ import annotations

from dataclasses import dataclass

HERE = "tests/runtime/delegates/gpu/"
PARTITION = "tests/runtime/test_partition.py::"
COST = "tests/runtime/test_cost_aware_partitions.py::"
COMPILED = "tests/runtime/api/test_compiled_model.py::"
SPECIAL = "tests/runtime/ops/test_special_values.py::"
ADVICE = "tests/runtime/tools/test_plan_advice.py::"
INFO = "tests/runtime/tools/test_model_info.py::"
QUANTISED = "tests/models/test_quantised_models.py::"
FALLBACK = HERE + "test_fallback.py::"
FAULTS = HERE + "test_faults.py::"
PROFILE = "tests/runtime/tools/test_model_profile.py::"
DELEGATE = HERE + "test_delegate.py::"
PACKED = HERE + "test_packed_file.py::"
BACKGROUND = HERE + "test_background_runs.py::"
BOUND = HERE + "test_bound_buffers.py::"
MEMORY = HERE + "test_caller_memory.py::"
BENCHMARKS = "tests/test_benchmarks.py::"
INTERPRETER = "tests/runtime/api/test_interpreter_api.py::"
CHECK = "tests/runtime/tools/test_operator_check.py::"
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
            HERE + "test_winograd_lowering.py::test_winograd_spreads_what_is_not_finite_over_its_tiles_alone",
            CHECK + "test_this_device_computes_every_operator_as_the_cpu_path_does",
        ),
    ),
    Promise(
        20,
        "So do those of the lists of both GPU delegates, with composites.",
        (
            HERE + "test_promises.py::test_few_operators_of_litert_s_lists_lack_kernels",
            HERE + "test_composites.py::test_a_composite_runs_whole_on_the_delegate",
            "tests/runtime/ops/movement/test_reshape.py::test_a_delegate_takes_a_model_with_densify_whole",
        ),
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
            FALLBACK + "test_operators_without_results_are_the_border_of_a_partition",
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
        (
            PARTITION + "test_two_delegates_take_parts_of_one_model",
            PROFILE + "test_delegates_take_their_operators_in_the_order_of_the_command_line",
        ),
    ),
    Promise(
        26,
        "A delegate that fails while it is applied leaves the original plan, with a report.",
        (
            FALLBACK + "test_a_partition_whose_build_fails_runs_on_the_cpu_and_the_report_says_why",
            FALLBACK + "test_a_defect_of_a_lowering_leaves_the_model_to_the_cpu_and_the_report_says_so",
            HERE + "test_device_memory.py::test_what_has_no_room_runs_on_the_cpu_with_the_reason",
            FAULTS + "test_a_device_without_memory_at_load_says_how_much_was_needed_of_how_much",
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
            HERE + "test_options.py::test_litert_s_options_have_their_effect",
            HERE + "test_options.py::test_litert_s_options_are_refused_with_what_is_allowed",
            HERE + "test_options.py::test_every_option_of_a_compiled_model_has_its_effect_or_is_refused",
        ),
    ),
    Promise(
        29,
        "Precisions follow from what is asked and what the device can; the one in force is recorded.",
        (
            HERE + "test_precision.py::test_the_probe_is_right_about_this_device_and_is_remembered",
            HERE + "test_precision.py::test_what_is_asked_for_is_used_or_refused_with_the_reason",
            HERE + "test_precision.py::test_results_stay_within_the_tolerance_in_half_the_memory",
        ),
        lacks="half precision in arithmetic: a GPU that has it",
    ),
    Promise(
        30,
        "The usage changes tuning and kernels and not results.",
        (
            HERE + "test_options.py::test_litert_s_options_have_their_effect",
            HERE + "test_winograd_lowering.py::test_the_least_memory_leaves_no_winograd",
            HERE + "test_networks.py::test_every_candidate_of_every_layer_computes_the_same",
        ),
    ),
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
            BENCHMARKS + "test_a_warm_start_took_a_small_share_of_a_cold_one_where_both_were_measured",
        ),
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
            HERE + "test_sharing.py::test_plans_of_earlier_batches_are_kept_as_many_as_asked_for",
        ),
    ),
    Promise(
        35,
        "Runs wait for the device in the way that is asked for, or not at all.",
        (BACKGROUND + "test_ways_to_wait_differ_in_when_a_run_returns_and_not_in_its_results",),
    ),
    Promise(
        36,
        "Buffers of the caller are bound, before and after a delegate is applied, and used without a copy.",
        (
            BOUND + "test_a_bound_output_is_read_where_it_is_or_once_it_is_copied",
            BOUND + "test_a_buffer_of_opencl_is_bound",
            BOUND + "test_a_quantised_tensor_is_bound_in_its_own_type",
            BOUND + "test_what_cannot_be_bound_is_refused",
            MEMORY + "test_a_run_on_memory_of_the_caller_s_enqueues_kernels_alone",
            MEMORY + "test_what_kernels_cannot_reach_is_copied_and_the_reason_says_why",
            MEMORY + "test_memory_that_cannot_hold_a_tensor_is_refused_and_the_model_stays_usable",
            BOUND + "test_a_quantised_tensor_takes_a_buffer_of_real_numbers",
        ),
    ),
    Promise(
        37,
        "A graph runs from another thread, and two at once.",
        (
            DELEGATE + "test_two_graphs_with_persistent_kernels_run_from_two_threads",
            FAULTS + "test_two_threads_on_one_graph_get_their_own_results",
        ),
    ),
    Promise(
        38,
        "The cost of odd counts of channels is measured and shown.",
        (
            ADVICE + "test_channels_that_are_no_multiple_of_4_are_named_with_their_padding",
            BENCHMARKS + "test_counts_of_channels_have_times_and_bytes",
        ),
    ),
    Promise(
        39,
        "Passes change the graph and not its outputs.",
        (
            HERE + "test_networks.py::test_network_matches_the_cpu_path_and_is_fully_delegated",
            HERE + "test_passes.py::test_reshape_to_the_same_shape_disappears",
            HERE + "test_canonicalise.py::test_a_split_is_a_slice_for_each_output",
            HERE + "test_passes.py::test_each_pass_can_be_left_out_which_changes_the_plan",
            HERE + "test_passes.py::test_without_a_pass_and_without_any_the_outputs_are_the_same",
        ),
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
            HERE + "test_winograd_lowering.py::test_winograd_gives_the_sums_of_a_plain_convolution",
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
            "tests/runtime/common/test_arena.py::test_buffers_that_live_at_once_share_no_byte",
            "tests/runtime/common/test_arena.py::test_the_arena_is_at_least_the_peak_and_at_most_no_sharing",
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
        (
            DELEGATE + "test_the_profile_has_a_row_for_every_kernel_with_its_operators",
            PROFILE + "test_the_profile_has_a_row_for_each_planned_kernel_and_for_the_operator_on_the_cpu",
            PROFILE + "test_times_of_operators_and_types_add_up_to_the_rows",
        ),
    ),
    Promise(
        46,
        "An operator that a device computes wrongly is not delegated there.",
        (
            CHECK + "test_an_operator_that_a_device_computes_wrongly_is_not_delegated_there",
            CHECK + "test_an_operator_whose_kernel_does_not_compile_is_wrong_and_the_others_are_checked",
            CHECK + "test_every_operator_that_has_kernels_has_a_row_whose_results_tell_something",
            "tests/agent/runner/test_probe.py::test_what_a_check_finds_is_kept_and_is_a_fact_of_the_device",
        ),
    ),
    Promise(
        47,
        "A script for LiteRT Next's classes runs with LiteRT's package and with ours.",
        (
            COMPILED + "test_signatures_and_details_are_those_of_litert",
            COMPILED + "test_runs_by_index_and_by_name_give_what_litert_gives",
            COMPILED + "test_options_and_environments_are_taken_as_litert_takes_them",
            COMPILED + "test_tensor_buffers_read_and_write_as_litert_s_do",
        ),
    ),
    Promise(
        48,
        "A GPU alone is an error where it cannot run all; with the CPU the report says what fell back.",
        (
            COMPILED + "test_a_gpu_runs_all_or_shares_with_the_cpu",
            COMPILED + "test_without_the_device_the_cpu_runs_it_and_says_so",
        ),
    ),
    Promise(
        49,
        "Buffers lie over host memory, the caller's own OpenCL buffers and DLPack's tensors, without a copy.",
        (
            COMPILED + "test_aligned_host_memory_is_shared",
            COMPILED + "test_buffers_hold_every_type_of_a_tensor",
            MEMORY + "test_a_run_on_memory_of_the_caller_s_enqueues_kernels_alone",
            MEMORY + "test_dlpack_shares_memory_both_ways",
            MEMORY + "test_a_device_with_memory_of_its_own_copies_and_says_so",
            MEMORY + "test_other_objects_are_no_buffers_of_opencl",
        ),
        lacks="objects of OpenGL: a driver that shares them with OpenCL",
    ),
    Promise(
        50,
        "A run starts at once, behind its inputs' events on the device, while the processor works.",
        (
            BACKGROUND + "test_a_run_begins_behind_its_input_s_event_which_nobody_but_the_device_waits_for",
            BACKGROUND + "test_events_of_opencl_go_in_and_out",
            BACKGROUND + "test_events_that_cannot_order_a_run_are_refused_and_the_model_stays_usable",
            BACKGROUND + "test_an_error_of_a_run_comes_out_of_its_event_and_of_those_that_waited_for_it",
            BACKGROUND + "test_the_processor_works_while_two_models_run",
            BACKGROUND + "test_ten_thousand_runs_leave_nothing_behind",
        ),
    ),
    Promise(
        51,
        "The output of one model is the input of the next, without the host in between.",
        (BACKGROUND + "test_the_output_of_one_model_is_the_input_of_the_next_without_a_host_between",),
    ),
    Promise(
        52,
        "The interpreter, its signature runners, resolvers and experimental flags take what LiteRT's take.",
        (
            COMPILED + "test_names_are_found_where_litert_has_them",
            COMPILED + "test_methods_take_litert_s_parameters",
            INTERPRETER + "test_resolvers_flags_and_threads_are_accepted",
            INTERPRETER + "test_signatures_run_by_name",
            INTERPRETER + "test_misuse_has_errors_of_the_kinds_that_litert_raises",
        ),
    ),
)

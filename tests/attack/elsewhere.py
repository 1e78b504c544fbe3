"""Attacks whose tests need no lab, and so stand beside what they attack: test -> what must hold.

`python -m tests.attack.elsewhere` prints the tests, for `make test-attack`.
"""

from __future__ import annotations

import sys
from typing import Final

ELSEWHERE: Final = {
    "tests/agent/attempt/test_files.py::test_a_runner_cannot_speak_for_its_agent_or_the_farm": (
        "A runner ends its attempt as done, failed or unsupported, by no word of its agent or the farm."
    ),
    "tests/agent/attempt/test_lease.py::test_a_process_that_inherited_it_cannot_free_it": (
        "A device stays locked, whatever a process does with a descriptor that it inherited."
    ),
    "tests/agent/attempt/test_runlog.py::test_a_runner_fills_no_log_of_its_agent": (
        "The log of runs is bounded, and a runner overwrites none of it."
    ),
    "tests/agent/processes/test_left_files.py::test_a_job_file_that_is_a_pipe_keeps_nobody_waiting": (
        "A pipe in the place of a file that the agent or its link reads holds nothing up."
    ),
    "tests/agent/processes/test_left_files.py::test_whatever_a_runner_leaves_is_removed_and_nothing_else": (
        "Deep, closed and linked folders go, and nothing outside of them."
    ),
    "tests/agent/processes/test_descendants.py::test_who_bears_the_name_of_another_attempt_belongs_to_none": (
        "A process under another attempt's name is found and ended."
    ),
    "tests/agent/processes/test_sandbox.py::test_a_way_out_works_without_the_sandbox_and_is_refused_by_it": (
        "Each way out works without the sandbox and is refused by it, for root, an ordinary user and a "
        "container without namespaces."
    ),
    "tests/agent/runner/test_conclusions.py"
    "::test_a_process_that_is_scheduled_otherwise_in_the_end_cannot_be": (
        "A process whose scheduler, priority or CPUs changed in its loop is void."
    ),
    "tests/agent/runner/test_probe.py::test_what_the_probe_imports_reaches_nothing_but_a_folder_of_its_own": (
        "The probe imports delegates and loads drivers within the boundary of a runner."
    ),
    "tests/agent/runner/test_reported.py"
    "::test_what_a_runner_says_of_its_machine_is_looked_into_and_not_believed": (
        "The agent's own probe says what a device is; a runner's word counts for its own result alone."
    ),
    "tests/agent/test_model_verbs.py::test_what_runs_or_plans_a_strangers_model_besides_reaches_nothing": (
        "`farm model bench` and `farm submit --explain` run and plan a model within the boundary."
    ),
    "tests/orchestrator/cli/test_imports.py"
    "::test_hostile_and_endless_names_are_one_short_line_each_in_a_pipe_too": (
        "No escape sequence of an imported file reaches a terminal through a pipe, and names are short."
    ),
    "tests/orchestrator/db/test_ingest.py::test_what_a_runner_says_of_its_machine_is_its_own_results_alone": (
        "Neither a failed nor a finished result changes what its device is."
    ),
    "tests/orchestrator/endpoint/test_model_uploads.py"
    "::test_nobody_spoils_or_blocks_what_another_user_sends": (
        "Every sender has an unfinished upload of its own."
    ),
    "tests/orchestrator/endpoint/test_model_uploads.py"
    "::test_whole_uploads_count_for_their_sender_until_a_campaign_names_them": (
        "A sender's files that no campaign names have a bound."
    ),
    "tests/orchestrator/endpoint/test_model_uploads.py"
    "::test_what_no_campaign_names_is_deleted_after_an_hour_and_not_under_a_submission": (
        "They are deleted after an hour."
    ),
    "tests/orchestrator/endpoint/test_odd_requests.py::test_a_name_that_none_has_is_refused_as_such": (
        "A wrong hash in any form is no fault of the farm."
    ),
    "tests/orchestrator/endpoint/test_users_elsewhere.py"
    "::test_an_endless_reference_is_refused_without_a_word_about_the_database": (
        "A long reference is refused, and no path of the database is told."
    ),
    "tests/orchestrator/endpoint/test_users_elsewhere.py"
    "::test_a_request_says_of_no_file_but_its_campaigns_that_a_campaign_names_it": (
        "A user's request for a campaign deletes no file of the farm, and frees its sender of no bound."
    ),
    "tests/orchestrator/farm/test_notification.py"
    "::test_a_receiver_of_a_file_is_one_that_the_machine_allows": (
        "A campaign file names no receiver that the operator does not allow."
    ),
    "tests/orchestrator/farm/test_notification.py"
    "::test_a_signature_is_of_one_message_to_one_receiver_at_one_time": (
        "A notification cannot be replayed, nor sent to another receiver."
    ),
    "tests/orchestrator/maintenance/test_restore.py"
    "::test_a_restored_backup_says_who_gets_in_and_lets_in_nobody_who_was_revoked": (
        "A backup gives nobody back what was revoked since, and whom it lets in is listed."
    ),
    "tests/orchestrator/policy/test_attempt_ends.py"
    "::test_a_cancel_that_nobody_asked_for_is_no_further_attempt": (
        "A runner that says it was cancelled has failed."
    ),
    "tests/orchestrator/policy/test_reservation.py::test_no_user_keeps_a_lab_or_a_device_for_ever": (
        "A user reserves a share of the devices, and none of them again at once."
    ),
    "tests/orchestrator/results/test_imports.py::test_a_hostile_file_is_refused_at_once": (
        "No damaged or hostile file is a traceback, or takes more than a moment."
    ),
    "tests/orchestrator/trust/test_users.py::test_a_name_that_a_token_cannot_begin_with_is_refused": (
        "No user of the endpoint is named like an account of the server."
    ),
    "tests/runtime/judge/test_agreement.py"
    "::test_a_model_that_amplifies_rounding_is_not_judged_and_never_called_wrong": (
        "Where XNNPACK itself is far off, a delegate is not judged, and passes by no such comparison."
    ),
    "tests/runtime/ops/matmul/test_integer_gemm.py::test_an_extreme_bias_wraps_around_as_in_litert": (
        "An extreme bias gives on CPU and GPU what LiteRT gives."
    ),
}

if __name__ == "__main__":
    sys.stdout.write("\n".join(ELSEWHERE) + "\n")

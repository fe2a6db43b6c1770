"""Which test shows which case that an indexer must survive.

| case | shown by |
|---|---|
| restart with an offline reorganisation | test_reorg.py `test_reorg__while_the_indexer_was_away__found_at_restart` |
| a second reorganisation during a rollback | test_reorg.py `test_reorg__second_one_during_the_first__ends_on_the_newest_branch`, test_coordinator.py `test_branch__whatever_the_node_does_meanwhile__is_whole_and_of_one_chain` |
| a reorganisation with no event of ours | test_reorg.py `test_reorg__with_no_event_of_ours__headers_follow` |
| the same transaction mined again in another block | test_reorg.py `test_reorg__same_transaction_in_another_block__row_names_the_new_block` |
| an id reused with another commitment | test_reorg.py `test_reorg__removes_moves_and_unsettles__equals_fresh_index` |
| a reorganisation of all there is, and one too deep | test_reorg.py `test_reorg__of_the_first_block__everything_is_replaced`, `test_reorg__deeper_than_the_window__stops_until_rebuilt` |
| any order of growth, reorganisations, lagging heads, ranges, restarts | test_window_machine.py `Histories`, test_window.py `test_reconcile__random_heads_of_random_trees__window_is_the_head_s_chain` |
| `removed: true`, logIndex clashes, duplicates, logs outside the range, null logs | test_odd_answers.py `test_each_lie_about_a_block_s_logs__not_a_row_of_it`, `test_each_lie_about_a_range_s_logs__not_a_row_of_it`; test_trouble.py `test_lies_about_logs__nothing_missing_and_nothing_foreign`; test_ranges.py `test_logs__one_foreign_or_twice__none_is_believed` |
| null results | test_trouble.py `test_missing_blocks__retried`, test_rpc.py `test_logs__null_or_unusable__malformed` |
| unordered, repeated and missing batch answers | test_odd_answers.py `test_batch_answered_in_disorder__headers_are_in_order`, test_rpc.py `test_headers__batch_with_wrong_answers__malformed` |
| blocks missing behind a balancer | test_odd_answers.py `test_blocks_missing_behind_a_balancer__nothing_is_skipped` |
| logs missing behind a balancer, once or for good | test_odd_answers.py `test_logs_missing_behind_a_balancer__asked_again`, `test_logs_kept_back_for_good__found_in_the_receipts` |
| the head goes backwards | test_odd_answers.py `test_head_goes_back_and_forth__cursor_never_does`, test_reorg.py `test_head_goes_backwards__cursor_stays` |
| `latest` older than `finalized` | test_odd_answers.py `test_latest_older_than_finalized__both_believed_no_further_than_they_go` |
| no `finalized` tag, never or for once | test_odd_answers.py `test_chain_without_finality__a_quarter_of_the_window_deep`, `test_finality_unknown_for_a_while__nothing_is_guessed_and_nothing_waits` |
| a node on another fork | test_odd_answers.py `test_node_on_another_fork__followed_and_left_again` |
| range errors in each dialect | test_odd_answers.py `test_range_refused_in_each_dialect__halved_until_it_is_taken` |
| genesis | test_long_chains.py `test_genesis__all_blocks_but_the_first_replaced`, test_prepare.py `test_start_block__genesis__indexed_from_there`, `test_prepare__first_block_pruned__believed_by_its_chain_id` |
| an empty million blocks | test_long_chains.py `test_empty_million_blocks__few_calls_and_the_request_behind_them` |
| 10,000 logs in one block | test_hostile_logs.py `test_block_of_10_000_logs__all_of_them_live_and_in_a_range` |
| an input of 1 MB | test_hostile_logs.py `test_input_of_a_megabyte__kept_to_the_byte` |
| NUL and invalid UTF-8 | test_hostile_logs.py `test_strings_with_nul_and_invalid_utf_8__kept_as_they_are` |
| dirty padding, offsets outside the data | test_hostile_logs.py `test_damaged_logs__quarantined_and_nothing_waits_for_them`, test_decode.py `test_decode__damaged_encodings__refused_exactly_where_eth_abi_does` |
| edges of int8, int4 and uint256 | test_edges.py `test_largest_numbers__stored_and_read_back`, `test_header__one_beyond_its_column__refused`, `test_log__one_beyond_its_column__refused`, `test_event__one_beyond_its_column__refused` |
| two cursors never | test_odd_answers.py `test_two_indexers_on_one_database__one_cursor_and_each_row_once`, test_commit.py `test_commit__two_first_writers__one_wins`, `test_commit__cursor_moved_by_another__nothing_written` |
| kill -9 anywhere | ../faults/test_kill_indexer.py `test_killed_again_and_again__rows_and_cursor_are_of_one_block`, test_commit.py `test_kill__between_any_two_statements__all_or_nothing` |
| all of it at once | ../faults/test_soak.py `test_soak__random_faults_and_reorganisations__tables_are_the_chain` |
"""  # noqa: E501 - rows of a table

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case_table import assert_has_its_tests, case, rows


@pytest.mark.parametrize("row", rows(__doc__), ids=case)
def test_case__has_the_tests_it_names(row: str) -> None:
    assert_has_its_tests(row, Path(__file__).parent)

"""Which test shows which case that settlement must survive.

| case | shown by |
|---|---|
| response lost after acceptance | ../faults/test_faulty_nodes.py `test_response_lost_after_acceptance`; test_faults.py `test_answer_lost_after_the_node_took_it`; ../faults/test_send_roles.py `test_an_answer_lost_by_one_relay_sends_the_same_bytes_to_the_next` |
| already known | ../faults/test_faulty_nodes.py `test_already_known`; test_faults.py `test_already_known_is_success` |
| nonce too low for our own mined transaction | ../faults/test_faulty_nodes.py `test_nonce_too_low_for_our_own_mined_transaction`; test_faults.py `test_nonce_too_low_for_our_own_mined_transaction` |
| underpriced in maximum fee, in tip, in either of a replacement | test_refused.py `test_base_fee_jumps_over_the_cap_between_look_and_send`, `test_refused_as_too_cheap_at_the_cap_is_sent_again_each_block`; ../faults/test_faulty_nodes.py `test_underpriced_by_the_pool_s_least_tip`, `test_replacement_underpriced_on_either_field`; test_faults.py `test_underpriced_answers_raise_the_price_until_it_is_taken` |
| replacements that geth takes: a tenth more in both fields | ../faults/test_faulty_nodes.py `test_every_replacement_is_one_that_geth_takes`; ../faults/test_geth_pool.py `test_replaced_by_a_tenth_more_in_both_fields_and_nothing_less`; test_fees.py `test_replacement_is_taken_by_every_client_or_not_made` |
| all that a pool has of an account shares its balance, as geth has it | ../faults/test_faulty_nodes.py `test_posts_that_share_a_pool_never_overdraw_the_account`; ../faults/test_geth_pool.py `test_all_of_an_account_shares_its_balance__a_replacement_counts_once` |
| words of refusal, by client: geth, reth, nethermind, besu, erigon, anvil, arbitrum, op | ../indexer/test_refusals.py `test_meaning`, `test_what_may_never_pass_is_given_up_in_time_and_nothing_else`; test_unknown.py `test_bytes_that_a_pool_lost_are_dropped_and_sent_again` |
| future nonce refused | ../faults/test_faulty_nodes.py `test_future_nonce_refused` |
| pool eviction | ../faults/test_faulty_nodes.py `test_pool_eviction`; test_unknown.py `test_bytes_that_a_pool_lost_are_dropped_and_sent_again`; ../faults/test_send_roles.py `test_a_relay_that_loses_all_gets_the_same_nonce_again` |
| receipt null then present | ../faults/test_faulty_nodes.py `test_receipt_null_then_present`; test_faults.py `test_receipt_null_then_present`; test_unknown.py `test_a_mined_post_that_no_endpoint_shows_is_known_by_its_events` |
| receipt from a reorged block, and geth's pooling it again | ../faults/test_faulty_nodes.py `test_receipt_from_a_reorged_block`; test_faults.py `test_receipt_of_a_block_off_the_branch_is_no_receipt`; test_reorg.py `test_reorg_over_a_post`, `test_a_closed_transaction_that_moved_to_another_block_is_followed_there` |
| reverted receipt | test_gas_limits.py `test_a_revert_that_is_not_for_gas_is_retried_apart_and_ends`; test_apart.py `test_a_poisonous_result_is_found_by_halves_and_given_up` |
| estimate too low | ../faults/test_faulty_nodes.py `test_estimate_too_low__a_reverted_receipt_and_a_higher_limit`; test_gas_limits.py `test_out_of_gas_is_answered_by_a_higher_limit_and_blames_nobody` |
| lagging read node behind a sending node | ../faults/test_send_roles.py `test_a_read_node_that_lags_behind_the_sending_one` |
| two nodes with different pools | ../faults/test_faulty_nodes.py `test_two_nodes_with_different_pools`; ../faults/test_send_roles.py `test_the_older_of_two_in_different_pools_is_mined` |
| 429 in mid-send | ../faults/test_faulty_nodes.py `test_429_in_mid_send` |
| reorganisations of depth 1 to 32, before and after confirmed, and a rival's post winning | test_deep_reorgs.py `test_each_request_is_paid_once`; test_reorg.py `test_reorg_over_a_post`, `test_later_work_goes_on_behind_a_transaction_that_came_back` |
| the fee market: ten times dearer within 20 blocks and back, recorded blocks, no loss, no deadline lost | test_fee_market.py `test_a_series`; test_budgets.py `test_a_budget_of_an_hour_holds_for_replacements`; test_market.py `test_a_head_that_follows_the_rule_needs_no_word_of_the_node`, `test_where_it_does_not_the_node_is_believed_within_bounds` |
| rivals for the same requests | ../faults/test_rivals.py `test_each_request_is_paid_once_and_little_gas_is_lost`; test_turns.py `test_who_loses_waits_and_saves_its_gas`; test_rivalry.py `test_two_that_learn_from_each_other_come_to_rest_below_the_stated_share` |
| a foreign transaction takes our nonce, or leaves it | test_faults.py `test_foreign_transaction_takes_our_nonce`, `test_nonce_that_a_reorg_took_from_a_foreign_transaction_is_filled` |
| a node without the state of old blocks, and intents that can never be final | test_finality.py `test_finality_needs_no_state_of_old_blocks`, `test_what_is_never_final_holds_up_nothing_else` |
| a node that fails on one item's calldata | test_dead_in_a_batch.py `test_a_result_that_the_node_fails_on_holds_up_nothing`, `test_a_refund_that_the_node_fails_on_holds_up_no_other`, `test_a_callback_that_the_node_fails_on_holds_up_no_other` |
| contracts that are gone | test_void.py `test_what_was_sent_into_the_void_is_no_success`, `test_nothing_is_sent_into_the_void` |
| rivals for results, refunds and deliveries | test_turns.py `test_who_loses_waits_and_saves_its_gas`; test_service_turns.py `test_who_loses_refunds_waits_and_saves_its_gas`, `test_who_loses_deliveries_waits` |
| SIGKILL before and after every await | test_kill_points.py `test_killed_at_every_await__the_next_process_ends_it_once`; ../faults/test_crash_points.py `test_killed_at` |
| all of it in any order | test_random_history.py `test_whatever_happens_each_request_ends_once_and_each_nonce_is_mined` |
"""  # noqa: E501 - rows of a table

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case_table import assert_has_its_tests, case, rows


@pytest.mark.parametrize("row", rows(__doc__), ids=case)
def test_case__has_the_tests_it_names(row: str) -> None:
    assert_has_its_tests(row, Path(__file__).parent)

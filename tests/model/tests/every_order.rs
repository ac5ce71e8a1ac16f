//! Each test runs a scenario in every interleaving of its threads; long scenarios are limited to a
//! few preemptions. The last tests run the broken copies: the model must find each error.

use nexar_model::{
    assert_found, device_poller, doorbell, message_ring, payload_slots, recent_calls,
};

#[test]
fn a_wake_is_never_lost() {
    nexar_model::a_wake_is_never_lost();
}

#[test]
fn an_old_wake_hides_no_new_one() {
    nexar_model::an_old_wake_hides_no_new_one();
}

#[test]
fn turns_come_one_by_one_to_both() {
    nexar_model::turns_come_one_by_one_to_both();
}

#[test]
fn turns_come_one_by_one_to_three() {
    nexar_model::turns_come_one_by_one_to_three();
}

#[test]
fn an_operation_given_up_blocks_nobody() {
    nexar_model::an_operation_given_up_blocks_nobody();
}

#[test]
fn an_operation_completed_under_the_lock_passes_the_turn_on() {
    nexar_model::an_operation_completed_under_the_lock_passes_the_turn_on();
}

#[test]
fn with_a_fence_on_both_sides_an_epoch_wakes_its_sleeper() {
    doorbell::scenarios::with_a_fence_on_both_sides_an_epoch_wakes_its_sleeper();
}

#[test]
fn with_membarrier_an_epoch_wakes_its_sleeper() {
    doorbell::scenarios::with_membarrier_an_epoch_wakes_its_sleeper();
}

#[test]
fn a_writer_out_of_reach_of_membarrier_wakes_with_its_own_fence() {
    doorbell::scenarios::a_writer_out_of_reach_of_membarrier_wakes_with_its_own_fence();
}

#[test]
fn an_epoch_wakes_every_sleeper_of_a_process() {
    doorbell::scenarios::an_epoch_wakes_every_sleeper_of_a_process();
}

#[test]
fn ranks_that_wait_for_each_other_both_wake() {
    doorbell::scenarios::ranks_that_wait_for_each_other_both_wake();
}

#[test]
fn a_reader_gets_whole_calls_of_their_numbers() {
    recent_calls::scenarios::a_reader_gets_whole_calls_of_their_numbers();
}

#[test]
fn a_call_before_the_end_is_there() {
    recent_calls::scenarios::a_call_before_the_end_is_there();
}

#[test]
fn a_thread_that_waits_is_woken() {
    device_poller::scenarios::a_thread_that_waits_is_woken();
}

#[test]
fn a_second_wait_is_woken_too() {
    device_poller::scenarios::a_second_wait_is_woken_too();
}

#[test]
fn threads_that_wait_at_once_are_all_woken() {
    device_poller::scenarios::threads_that_wait_at_once_are_all_woken();
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    device_poller::scenarios::the_waker_of_the_last_poll_is_woken();
}

#[test]
fn a_wait_that_is_given_up_leaves_its_word_alone() {
    device_poller::scenarios::a_wait_that_is_given_up_leaves_its_word_alone();
}

#[test]
fn a_wait_that_is_over_ends() {
    device_poller::scenarios::a_wait_that_is_over_ends();
}

#[test]
fn short_messages_are_read_whole_and_in_order() {
    message_ring::scenarios::short_messages_are_read_whole_and_in_order();
}

#[test]
fn long_payloads_are_read_before_they_are_overwritten() {
    message_ring::scenarios::long_payloads_are_read_before_they_are_overwritten();
}

#[test]
fn parts_of_a_payload_arrive_in_order() {
    payload_slots::scenarios::parts_of_a_payload_arrive_in_order();
}

#[test]
fn payloads_arrive_one_after_another() {
    payload_slots::scenarios::payloads_arrive_one_after_another();
}

#[test]
fn every_broken_copy_of_the_message_ring_is_found() {
    assert_found(message_ring::BROKEN);
}

#[test]
fn every_broken_copy_of_the_payload_slots_is_found() {
    assert_found(payload_slots::BROKEN);
}

#[test]
fn every_broken_copy_of_the_doorbell_is_found() {
    assert_found(doorbell::BROKEN);
}

#[test]
fn every_broken_copy_of_the_recent_calls_is_found() {
    assert_found(recent_calls::BROKEN);
}

#[test]
fn every_broken_copy_of_the_device_poller_is_found() {
    assert_found(device_poller::BROKEN);
}

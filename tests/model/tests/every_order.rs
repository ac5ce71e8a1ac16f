//! Each of these runs in every order in which its threads can meet, those of three threads in most.

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
fn who_ends_while_nobody_can_ask_leaves_the_turn_to_the_next() {
    nexar_model::who_ends_while_nobody_can_ask_leaves_the_turn_to_the_next();
}

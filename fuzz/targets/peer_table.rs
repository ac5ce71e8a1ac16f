//! The table of all ranks, which a rank receives from the root.
#![cfg_attr(fuzzing, no_main)]

use nexar::bootstrap::message::{ENTRY_BYTES, HEAD_BYTES, Message};
use nexar_fuzz::{fuzz_target, same_bytes, watched};

const TABLE: u8 = 4;

fuzz_target!(|body: &[u8]| {
    let length = (body.len() as u32).to_le_bytes();
    let head = [TABLE, 0, 0, 0, length[0], length[1], length[2], length[3]];
    // The number of entries that the rank expects.
    let ranks = body.len() / ENTRY_BYTES;
    assert_eq!(Message::head(head, ranks).is_some(), ranks * ENTRY_BYTES == body.len());
    if let Some(message) = watched(|| Message::decode(TABLE, body)) {
        same_bytes(&message.encode()[HEAD_BYTES..], body);
        let Message::Table(members) = message else { panic!("not a table: {message:?}") };
        assert_eq!(members.len(), ranks);
    }
});

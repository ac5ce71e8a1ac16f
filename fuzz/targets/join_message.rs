//! The messages between a rank and the root of an id, except for the table.
#![cfg_attr(fuzzing, no_main)]

use nexar::bootstrap::fingerprint::{Build, INTRODUCTION_BYTES, Introduction};
use nexar::bootstrap::message::{HEAD_BYTES, Message};
use nexar_fuzz::{fuzz_target, has_control_characters, is_failure, same_bytes, watched};

fuzz_target!(|data: &[u8]| {
    let data = with_this_build(data.to_vec());
    let mut rest = &data[..];
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let Some((kind, length)) = Message::head(*head, 0) else { return };
        let Some((body, next)) = behind.split_at_checked(length) else { return };
        let Some(message) = watched(|| Message::decode(kind, body)) else { return };
        if let Message::Refused { code, .. } = &message {
            assert!(is_failure(*code), "refused with code {code:?}");
        }
        match &message {
            // The signature covers all received fields.
            Message::Join(join) => {
                let signed = join.signed(&[7; 32]);
                assert!(signed.ends_with(&body[..body.len() - join.signature.len()]));
                same_bytes(&message.encode(), &rest[..HEAD_BYTES + length]);
            }
            // Only that build knows the fields that follow its introduction.
            Message::OtherBuild(introduction) => {
                let introduction = introduction.as_ref().map(|it| it.encode());
                assert!(introduction.is_none_or(|bytes| body.starts_with(&bytes)));
            }
            Message::Refused { .. } if has_control_characters(body) => {
                let again = message.encode();
                assert_eq!(Message::decode(kind, &again[HEAD_BYTES..]), Some(message));
            }
            _ => same_bytes(&message.encode(), &rest[..HEAD_BYTES + length]),
        }
        rest = next;
    }
});

/// Fills in the introduction of this build if the first message is a Join with zeros in its place:
/// no input can contain the fingerprint of this build.
fn with_this_build(mut data: Vec<u8>) -> Vec<u8> {
    if let [2, rest @ ..] = &mut data[..]
        && let Some(place) = rest.get_mut(HEAD_BYTES - 1..HEAD_BYTES - 1 + INTRODUCTION_BYTES)
        && place.iter().all(|byte| *byte == 0)
    {
        place.copy_from_slice(&Introduction { rank: 0, build: Build::of_this() }.encode());
    }
    data
}

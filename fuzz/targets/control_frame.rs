//! A sequence of frames of the control stream.
#![cfg_attr(fuzzing, no_main)]

use nexar::transport::quic::control::{Frame, HEAD_BYTES};
use nexar_fuzz::{fuzz_target, has_control_characters, is_failure, same_bytes, watched};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let Some((kind, length)) = Frame::head(*head) else { return };
        let Some((body, next)) = behind.split_at_checked(length) else { return };
        let Some(frame) = watched(|| Frame::decode(kind, body)) else { return };
        if let Frame::Fault { code, .. } = &frame {
            assert!(is_failure(*code), "a fault with code {code:?}");
        }
        match &frame {
            Frame::Fault { .. } | Frame::Disagreement { .. } if has_control_characters(body) => {
                let again = frame.encode();
                assert_eq!(Frame::decode(kind, &again[HEAD_BYTES..]), Some(frame));
            }
            _ => same_bytes(&frame.encode(), &rest[..HEAD_BYTES + length]),
        }
        rest = next;
    }
});

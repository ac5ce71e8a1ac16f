//! The header of a data message of a collective, and its comparison with the expected header.
#![cfg_attr(fuzzing, no_main)]

use nexar::error::Error;
use nexar::rank::Rank;
use nexar::transport::{HEADER_BYTES, Header};
use nexar_fuzz::{fuzz_target, same_bytes, watched};

fuzz_target!(|data: &[u8]| {
    let Some((one, rest)) = data.split_first_chunk() else { return };
    let Some(one) = decode(one) else { return };
    let other = rest.first_chunk().and_then(decode).unwrap_or(one);
    if can_be_expected(&one) {
        let checked = one.check(Rank(0), Rank(1), &other);
        assert_eq!(checked.is_ok(), one == other);
        if let Err(error @ Error::Mismatch { .. }) = checked
            && can_be_expected(&other)
        {
            let there = other.check(Rank(1), Rank(0), &one).unwrap_err();
            assert_eq!(error.to_string(), there.to_string(), "the same text on both sides");
        }
    }
});

fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
    let header = watched(|| Header::decode(bytes))?;
    same_bytes(&header.encode(), bytes);
    Some(header)
}

/// Whether a rank can expect this header: the first call of a communicator has no previous call.
fn can_be_expected(header: &Header) -> bool {
    header.seq > 0 || header.history.previous().is_none()
}

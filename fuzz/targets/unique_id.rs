//! A unique id: any 128 bytes, and the same with the correct magic and checksum, which no fuzzer
//! guesses.
#![cfg_attr(fuzzing, no_main)]

use nexar::bootstrap::id::{BYTES, UniqueId};
use nexar_fuzz::{fuzz_target, same_bytes, watched};

fuzz_target!(|data: &[u8]| {
    let mut id = [0; BYTES];
    let length = data.len().min(BYTES);
    id[..length].copy_from_slice(&data[..length]);
    decode(&id);
    id[..4].copy_from_slice(b"NXR1");
    let checksum = crc32c::crc32c(&id[..124]);
    id[124..].copy_from_slice(&checksum.to_le_bytes());
    decode(&id);
});

fn decode(bytes: &[u8; BYTES]) {
    if let Ok(id) = watched(|| UniqueId::decode(bytes)) {
        same_bytes(&id.encode(), bytes);
        assert!((1..=2).contains(&id.addresses.len()));
    }
}

//! Encodings of a fixed length: the preamble of a stream, a raw public key as TLS carries it, and
//! the color and key of a split. The first byte selects one of them.
#![cfg_attr(fuzzing, no_main)]

use nexar::comm::ColorKey;
use nexar::transport::key::PublicKey;
use nexar::transport::quic::preamble::Preamble;
use nexar_fuzz::{fuzz_target, same_bytes, watched};

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 3 {
        0 => preamble(bytes),
        1 => public_key(bytes),
        _ => color_key(bytes),
    }
});

fn preamble(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk() else { return };
    if let Some(preamble) = watched(|| Preamble::decode(bytes)) {
        same_bytes(&preamble.encode(), bytes);
    }
}

fn public_key(bytes: &[u8]) {
    if let Some(key) = watched(|| PublicKey::from_spki(bytes)) {
        assert_eq!(bytes.len(), 44);
        same_bytes(key.bytes(), &bytes[12..]);
        assert!(!key.verify(b"anything", &[0; 64]), "a key that accepts a signature of zeros");
    }
}

fn color_key(bytes: &[u8]) {
    let Some(bytes) = bytes.first_chunk::<8>() else { return };
    let color_key = watched(|| ColorKey::decode(bytes));
    match color_key.color {
        Some(_) => same_bytes(&color_key.encode(), bytes),
        // Every negative color decodes as no color.
        None => assert!(bytes[3] >= 0x80 && ColorKey::decode(&color_key.encode()) == color_key),
    }
}

//! Replaces `src/transport`, as far as the modelled files need it.

pub const LANES: usize = 1;

#[derive(Clone, Copy)]
pub struct Lane(pub usize);

pub mod call_table {
    /// Two, so that a scenario of three calls overwrites one.
    pub const REMEMBERED: usize = 2;
}

pub mod wire {
    use crate::op::Call;

    pub type CallWords = [u64; 2];

    pub fn call_of_words(words: CallWords) -> Option<Call> {
        Some(Call(words))
    }
}

pub const CONTROL_HEAD_BYTES: usize = 24;
pub const MOST_MESSAGES: usize = 128;

/// A message whose head has its id, the length of its payload, and their sum.
#[derive(Debug, PartialEq, Eq)]
pub struct ControlMessage {
    pub id: u64,
    pub payload: Vec<u8>,
}

impl ControlMessage {
    pub fn head(&self) -> [u8; CONTROL_HEAD_BYTES] {
        let bytes = self.payload.len() as u64;
        let words = [self.id, bytes, self.id + bytes];
        let mut head = [0; CONTROL_HEAD_BYTES];
        for (at, word) in head.chunks_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    pub fn decode_shared(head: &[u8; CONTROL_HEAD_BYTES]) -> Option<Self> {
        let (words, _) = head.as_chunks::<8>();
        let [id, bytes, sum] = [0, 1, 2].map(|index| u64::from_le_bytes(words[index]));
        (id + bytes == sum).then(|| Self { id, payload: vec![0; bytes as usize] })
    }

    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.payload
    }
}

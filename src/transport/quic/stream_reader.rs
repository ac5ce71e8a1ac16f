//! Reading a stream of a peer: headers, exact lengths, and messages that are reduced or copied as
//! they arrive.
//!
//! Leaves to `streams` which stream it is. Invariants: bytes that were received beyond the
//! requested ones are kept; the parts of a message hold whole elements.

use bytes::Bytes;
use quinn::RecvStream;
use smallvec::SmallVec;

use super::super::{HEADER_BYTES, Header};
use super::link_error::LinkError;

/// Received pieces that are read at once.
const PIECES: usize = 32;

/// A stream of the peer, with the bytes that were received beyond the requested ones.
pub struct StreamReader {
    stream: RecvStream,
    ahead: Bytes,
}

impl StreamReader {
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, ahead: Bytes::new() }
    }

    pub async fn header(&mut self) -> Result<Header, LinkError> {
        let mut bytes = [0; HEADER_BYTES];
        self.fill(&mut bytes).await?;
        Header::decode(&bytes)
            .ok_or_else(|| LinkError::Protocol("sent a malformed header".to_owned()))
    }

    /// Reads exactly `into.len()` bytes.
    pub async fn fill(&mut self, mut into: &mut [u8]) -> Result<(), LinkError> {
        while !into.is_empty() {
            if self.ahead.is_empty() {
                self.ahead = piece(&mut self.stream).await?;
            }
            let front = self.ahead.split_to(self.ahead.len().min(into.len()));
            let (now, rest) = into.split_at_mut(front.len());
            now.copy_from_slice(&front);
            into = rest;
        }
        Ok(())
    }

    /// Fails unless the stream ends here.
    pub async fn end(&mut self) -> Result<(), LinkError> {
        match self.ahead.is_empty() && self.stream.read_chunk(1, true).await?.is_none() {
            true => Ok(()),
            false => Err(LinkError::Protocol("sent more than it announced".to_owned())),
        }
    }

    /// Reads the next `into.len()` bytes: calls `land(destination, part)` for each part as it
    /// arrives. A part holds whole elements of `element` bytes.
    pub async fn land(
        &mut self,
        into: &mut [u8],
        element: usize,
        mut land: impl FnMut(&mut [u8], &[u8]),
    ) -> Result<(), LinkError> {
        let mut landing = Landing { into, done: 0, element, split: SmallVec::new() };
        let mut pieces: [Bytes; PIECES] = Default::default();
        while landing.missing() > 0 {
            if self.ahead.is_empty() {
                let count = self.stream.read_chunks(&mut pieces).await?.ok_or(LinkError::Lost)?;
                let mut received = pieces[..count].iter_mut().map(std::mem::take);
                for mut piece in received.by_ref() {
                    let ours = piece.split_to(piece.len().min(landing.missing()));
                    landing.take(&ours, &mut land);
                    // Only the last piece that the message needs can hold bytes behind it.
                    if !piece.is_empty() {
                        self.ahead = join(piece, received);
                        break;
                    }
                }
            } else {
                let ours = self.ahead.split_to(self.ahead.len().min(landing.missing()));
                landing.take(&ours, &mut land);
            }
        }
        Ok(())
    }
}

/// Joins the bytes that were received behind a message.
fn join(first: Bytes, rest: impl Iterator<Item = Bytes>) -> Bytes {
    let rest: Vec<_> = rest.filter(|piece| !piece.is_empty()).collect();
    if rest.is_empty() {
        return first;
    }
    let mut all = first.to_vec();
    rest.iter().for_each(|piece| all.extend_from_slice(piece));
    all.into()
}

/// A message that arrives in pieces, which may be cut anywhere. An element that was cut is joined
/// before it lands. If the message does not end with an element, its last bytes land alone.
struct Landing<'a> {
    into: &'a mut [u8],
    done: usize,
    element: usize,
    /// The bytes that have arrived of an element that was cut.
    split: SmallVec<[u8; 64]>,
}

impl Landing<'_> {
    /// The number of bytes that have not arrived.
    fn missing(&self) -> usize {
        self.into.len() - self.done - self.split.len()
    }

    fn take(&mut self, mut piece: &[u8], land: &mut impl FnMut(&mut [u8], &[u8])) {
        if !self.split.is_empty() {
            let front = piece.len().min(self.element - self.split.len());
            self.split.extend_from_slice(&piece[..front]);
            piece = &piece[front..];
            let complete = self.split.len() == self.element || self.missing() == 0;
            if !complete {
                return;
            }
            let mut split = std::mem::take(&mut self.split);
            self.put(&split, land);
            split.clear();
            self.split = split;
        }
        let last = piece.len() == self.missing();
        let whole = if last { piece.len() } else { piece.len() - piece.len() % self.element };
        let (now, later) = piece.split_at(whole);
        self.put(now, land);
        self.split.extend_from_slice(later);
    }

    fn put(&mut self, part: &[u8], land: &mut impl FnMut(&mut [u8], &[u8])) {
        if !part.is_empty() {
            land(&mut self.into[self.done..self.done + part.len()], part);
            self.done += part.len();
        }
    }
}

async fn piece(stream: &mut RecvStream) -> Result<Bytes, LinkError> {
    let chunk = stream.read_chunk(usize::MAX, true).await?.ok_or(LinkError::Lost)?;
    Ok(chunk.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cut_anywhere_lands_in_whole_elements() {
        let message: Vec<u8> = (0..100).collect();
        let lengths = [0, 1, 7, 8, 9, 64, 100];
        let elements = [1, 4, 8, 12, 24, 70, 100];
        for (length, element) in lengths.into_iter().flat_map(|one| elements.map(|two| (one, two)))
        {
            for cut in 1..20 {
                let mut into = vec![0; length];
                let split = SmallVec::new();
                let mut landing = Landing { into: &mut into, done: 0, element, split };
                let mut parts = Vec::new();
                for piece in message[..length].chunks(cut) {
                    let mut land = |into: &mut [u8], part: &[u8]| {
                        into.copy_from_slice(part);
                        parts.push(part.len());
                    };
                    landing.take(piece, &mut land);
                }
                assert_eq!(landing.missing(), 0);
                assert_eq!(into, message[..length], "{length} bytes of {element} cut every {cut}");
                let (last, before) = parts.split_last().unwrap_or((&0, &[]));
                assert!(before.iter().all(|part| part % element == 0), "{length} {cut}: {parts:?}");
                assert_eq!(before.iter().sum::<usize>() + last, length);
            }
        }
    }
}

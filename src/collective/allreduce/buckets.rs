//! All-reduce of a list of buffers: short ones are packed together, long ones are reduced in place.
//!
//! Leaves to `super` the all-reduce of a piece. Invariants: the pieces depend on the lengths alone,
//! so they are the same on all ranks; the memory for packing is bounded, however long the list is.

use crate::error::{Error, Result};

/// Most bytes packed together.
const PACK: usize = 4 << 20;
/// A buffer of at least this length is reduced alone.
const LONG: usize = 1 << 20;

/// Buffers that are reduced together.
pub enum BucketPiece<'b, 'a> {
    Long(&'b mut [u8]),
    Short(&'b mut [&'a mut [u8]]),
}

/// Takes the next piece off the front of the list.
pub fn next<'b, 'a>(list: &mut &'b mut [&'a mut [u8]]) -> Option<BucketPiece<'b, 'a>> {
    let rest = std::mem::take(list);
    let mut bytes = 0;
    let short = rest.iter().take_while(|buffer| {
        bytes += buffer.len();
        buffer.len() < LONG && bytes <= PACK
    });
    match short.count() {
        0 => {
            let (first, others) = rest.split_first_mut()?;
            *list = others;
            Some(BucketPiece::Long(first))
        }
        short => {
            let (short, others) = rest.split_at_mut(short);
            *list = others;
            Some(BucketPiece::Short(short))
        }
    }
}

/// Writes buffers one after another into `packed`.
pub fn pack(buffers: &[&mut [u8]], packed: &mut Vec<u8>) -> Result<()> {
    let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
    packed.clear();
    packed.try_reserve_exact(bytes).map_err(|_| Error::out_of_memory(bytes))?;
    buffers.iter().for_each(|buffer| packed.extend_from_slice(buffer));
    Ok(())
}

pub fn unpack(mut packed: &[u8], buffers: &mut [&mut [u8]]) {
    for buffer in buffers {
        let (own, rest) = packed.split_at(buffer.len());
        buffer.copy_from_slice(own);
        packed = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(lengths: &[usize]) -> Vec<Vec<usize>> {
        let mut memory: Vec<_> = lengths.iter().map(|length| vec![0; *length]).collect();
        let mut buffers: Vec<_> = memory.iter_mut().map(Vec::as_mut_slice).collect();
        let mut list = &mut buffers[..];
        let mut found = Vec::new();
        while let Some(piece) = next(&mut list) {
            found.push(match piece {
                BucketPiece::Long(buffer) => vec![buffer.len()],
                BucketPiece::Short(buffers) => buffers.iter().map(|buffer| buffer.len()).collect(),
            });
        }
        found
    }

    #[test]
    fn short_buffers_are_packed_up_to_the_bound_and_long_ones_stay_alone() {
        assert_eq!(pieces(&[]), [[0; 0]; 0]);
        assert_eq!(pieces(&[0, 5, 0, 7]), [[0, 5, 0, 7]]);
        assert_eq!(pieces(&[1, LONG, 2, 3]), [vec![1], vec![LONG], vec![2, 3]]);
        assert_eq!(pieces(&[LONG - 1; 9]), [vec![LONG - 1; 4], vec![LONG - 1; 4], vec![LONG - 1]]);
        assert_eq!(pieces(&[9 * LONG]), [[9 * LONG]]);
    }

    #[test]
    fn unpacking_writes_each_buffer_back() {
        let (mut one, mut other) = ([1, 2, 3], [4]);
        let mut packed = vec![9];
        pack(&[&mut one, &mut [], &mut other], &mut packed).unwrap();
        assert_eq!(packed, [1, 2, 3, 4]);
        unpack(&[5, 6, 7, 8], &mut [&mut one, &mut [], &mut other]);
        assert_eq!((one, other), ([5, 6, 7], [8]));
    }
}

//! Passes over a whole buffer, in slices. Between two slices the task yields to the network and to
//! the deadline, however large the buffer is. Leaves to `reduce` what is done to a slice.

use std::ops::Range;

use tokio::task::yield_now;

use crate::buffer::Buffers;
use crate::error::{Error, Result};
use crate::op::Reducer;
use crate::reduce::Side;

/// A pass over this much takes well below a millisecond. The size of every built-in type divides
/// it.
const SLICE: usize = 1 << 20;

pub async fn copy(from: &[u8], into: &mut [u8]) {
    assert_eq!(from.len(), into.len(), "copied arrays are equally long");
    for (from, into) in from.chunks(SLICE).zip(into.chunks_mut(SLICE)) {
        into.copy_from_slice(from);
        pause(from).await;
    }
}

pub async fn prepare(reducer: &Reducer, data: &mut [u8], size: usize) {
    for slice in data.chunks_mut(SLICE) {
        reducer.prepare(slice, size);
        pause(slice).await;
    }
}

pub async fn finish(reducer: &Reducer, data: &mut [u8], size: usize) {
    for slice in data.chunks_mut(SLICE) {
        reducer.finish(slice, size);
        pause(slice).await;
    }
}

pub async fn identity(reducer: &Reducer, data: &mut [u8]) {
    for slice in data.chunks_mut(SLICE) {
        reducer.identity(slice);
        pause(slice).await;
    }
}

pub async fn fold(reducer: &Reducer, into: &mut [u8], from: &[u8], side: Side) {
    let width = reducer.dtype().whole(SLICE);
    for (into, from) in into.chunks_mut(width).zip(from.chunks(width)) {
        reducer.fold(into, from, side);
        pause(from).await;
    }
}

/// Allocates zeroed memory.
pub async fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut memory = reserved(bytes)?;
    while memory.len() < bytes {
        let slice = SLICE.min(bytes - memory.len());
        memory.resize(memory.len() + slice, 0);
        pause(&memory[..slice]).await;
    }
    Ok(memory)
}

/// Allocates a copy.
pub async fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut memory = reserved(bytes.len())?;
    for slice in bytes.chunks(SLICE) {
        memory.extend_from_slice(slice);
        pause(slice).await;
    }
    Ok(memory)
}

/// The output of a call whose buffers are equally long, with the input in it: copied, or in place.
pub async fn into_output(buffers: Buffers<'_>) -> &mut [u8] {
    match buffers {
        Buffers::Apart { input, output } => {
            copy(input, output).await;
            output
        }
        Buffers::Shared { both } => both,
    }
}

/// Runs an algorithm on this rank's share in the output, which is prepared before and finished
/// after it.
pub async fn in_output(
    reducer: &Reducer,
    buffers: Buffers<'_>,
    size: usize,
    algorithm: impl AsyncFnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let data = into_output(buffers).await;
    prepare(reducer, data, size).await;
    algorithm(data).await?;
    finish(reducer, data, size).await;
    Ok(())
}

/// The output of a call that gathers blocks, with this rank's own block in it.
pub async fn with_own_block(buffers: Buffers<'_>, own: Range<usize>) -> &mut [u8] {
    match buffers {
        Buffers::Apart { input, output } => {
            copy(input, &mut output[own]).await;
            output
        }
        Buffers::Shared { both } => both,
    }
}

/// Writes a part of this rank's share, ready to be reduced among `size` ranks.
pub fn loader(reducer: &Reducer, input: &[u8], size: usize) -> impl Fn(Range<usize>, &mut [u8]) {
    move |part, into| {
        into.copy_from_slice(&input[part]);
        reducer.prepare(into, size);
    }
}

fn reserved(bytes: usize) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| Error::out_of_memory(bytes))?;
    Ok(memory)
}

/// A short buffer needs no pause. Whole elements may fill a slice but for its last one.
async fn pause(slice: &[u8]) {
    if slice.len() > SLICE / 2 {
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::parker::block_on;

    #[test]
    fn a_pass_yields_and_ends_at_the_deadline() {
        let bytes = 64 * SLICE;
        let whole = block_on(zeroed(bytes), Instant::now() + Duration::from_secs(30));
        assert!(whole.expect("half a minute is enough").unwrap().iter().all(|byte| *byte == 0));
        assert!(block_on(zeroed(bytes), Instant::now()).is_none(), "the deadline has passed");
    }

    #[test]
    fn a_copy_in_slices_is_complete() {
        for bytes in [0, 1, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE + 5] {
            let from: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
            let copying = async {
                let mut into = zeroed(bytes).await.unwrap();
                copy(&from, &mut into).await;
                assert!(copied(&from).await.unwrap() == from);
                into
            };
            let into = block_on(copying, Instant::now() + Duration::from_secs(30));
            assert!(into.expect("half a minute is enough") == from, "{bytes} bytes");
        }
    }
}

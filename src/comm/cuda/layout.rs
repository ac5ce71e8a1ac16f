//! Where the buffers of an operation are staged in host memory, and which bytes are copied.
//!
//! Slices of device memory are only addresses here: nothing reads or writes through them. Leaves to
//! `enqueue` when the copies are executed. Invariants: an operation's input is copied in before it,
//! its output is copied out after it, and no other byte of the caller is changed; the staged
//! buffers of one operation never overlap.

use std::ops::Range;

use crate::blocks::{self, Blocks};
use crate::buffer::Buffers;
use crate::message::{Incoming, Outgoing};
use crate::op::{Collective, Op, OpMemory};
use crate::rank::{Rank, RankOf};

/// Alignment of staged buffers: a cache line, so that no two of them share one.
const ALIGNMENT: usize = 64;

/// Address ranges that are device memory.
#[derive(Clone, Debug, Default)]
pub struct OnDevice(pub Vec<Range<usize>>);

impl OnDevice {
    fn has(&self, bytes: &[u8]) -> bool {
        let address = bytes.as_ptr().addr();
        !bytes.is_empty() && self.0.iter().any(|range| range.contains(&address))
    }
}

/// Rows to copy between a device and host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRows {
    pub device: u64,
    pub device_pitch: usize,
    /// Offset in host memory.
    pub host: usize,
    pub host_pitch: usize,
    pub width: usize,
    pub count: usize,
}

/// Where the buffers of an operation are in host memory.
#[derive(Clone, Debug, Default)]
pub struct StagingLayout {
    /// Where the input is, if it is staged; the same as the output if the operation is in place.
    input: Option<Range<usize>>,
    output: Option<Range<usize>>,
    input_blocks: Option<Blocks>,
    output_blocks: Option<Blocks>,
    buckets: Vec<Option<Range<usize>>>,
    scalar: Option<Range<usize>>,
    pub fetch: Vec<CopyRows>,
    pub store: Vec<CopyRows>,
    /// Bytes of host memory.
    pub bytes: usize,
}

/// Which part of a buffer an operation uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    All,
    /// This rank's block.
    Own,
    Nothing,
}

/// How an operation uses its buffers.
struct Use<'o, 'a> {
    buffers: &'o Buffers<'a>,
    input_blocks: Option<&'o Blocks>,
    output_blocks: Option<&'o Blocks>,
    /// `Own` is for buffers in place; of separate buffers all or nothing is used.
    read: Used,
    written: Used,
}

impl<'o, 'a> Use<'o, 'a> {
    /// `None` for an operation without an input and an output buffer.
    fn of(op: &'o Op<'a>, me: RankOf) -> Option<Self> {
        let if_so = |condition| if condition { Used::All } else { Used::Nothing };
        let (call, memory) = (op.call(), &op.memory);
        let is_root = call.root() == Some(me.rank);
        let (read, written) = match call.collective() {
            Collective::AllReduce | Collective::Scan => (Used::All, Used::All),
            // The first rank has no result if no identity is known.
            Collective::ExScan => (Used::All, if_so(!(call.calls_program() && me.rank == Rank(0)))),
            Collective::Reduce => (Used::All, if_so(is_root)),
            Collective::Broadcast => (if_so(is_root), Used::All),
            Collective::AllGather | Collective::Gather => (Used::Own, Used::All),
            Collective::ReduceScatter | Collective::Scatter => (Used::All, Used::Own),
            Collective::AllToAll => (Used::All, Used::All),
            Collective::AllReduceBucketed | Collective::Barrier | Collective::Split => return None,
        };
        let blocks = |blocks: &'o Blocks| (!blocks.is_empty()).then_some(blocks);
        let (input_blocks, output_blocks) = (blocks(&memory.sent), blocks(&memory.received));
        Some(Self { buffers: &memory.buffers, input_blocks, output_blocks, read, written })
    }
}

impl StagingLayout {
    /// The layout of an operation, or of a piece of one.
    pub fn of(op: &Op<'_>, me: RankOf, device: &OnDevice) -> Self {
        let mut layout = Self::default();
        for bucket in &op.memory.buckets {
            let staged = device.has(bucket).then(|| {
                // Not aligned: a piece of many buckets must fit a slot as one buffer of their total
                // length does.
                let range = layout.bytes..layout.bytes + bucket.len();
                layout.bytes = range.end;
                layout.fetch.push(CopyRows::one(bucket, range.start));
                range
            });
            layout.buckets.push(staged);
        }
        layout.store = layout.fetch.clone();
        if let Some(uses) = Use::of(op, me) {
            layout.lay_out(&uses, me, device);
        }
        if let Some((address, bytes)) = op.scalar_of_stream() {
            let range = layout.take(bytes);
            layout.fetch.push(CopyRows::at(address, bytes, range.start));
            layout.scalar = Some(range);
        }
        layout
    }

    fn lay_out(&mut self, uses: &Use<'_, '_>, me: RankOf, device: &OnDevice) {
        let Use { buffers, input_blocks, output_blocks, read, written } = *uses;
        match buffers {
            Buffers::Shared { both } if device.has(both) => {
                let blocks = input_blocks.or(output_blocks);
                let (range, packed, rows) = self.pack(both, blocks);
                let used = |used| match used {
                    Used::All => rows.clone(),
                    Used::Own => rows[me.rank.0..=me.rank.0].to_vec(),
                    Used::Nothing => Vec::new(),
                };
                (self.fetch, self.store) = (merged(&used(read)), merged(&used(written)));
                (self.input, self.output) = (Some(range.clone()), Some(range));
                self.input_blocks = input_blocks.and(packed.clone());
                self.output_blocks = output_blocks.and(packed);
            }
            Buffers::Shared { .. } => {}
            Buffers::Apart { input, output } => {
                if device.has(input) && read != Used::Nothing {
                    let (range, packed, rows) = self.pack(input, input_blocks);
                    (self.input, self.input_blocks) = (Some(range), packed);
                    self.fetch = merged(&rows);
                }
                if device.has(output) {
                    let is_linear = input_blocks.is_none() && output_blocks.is_none();
                    let (range, packed, rows) = match &self.input {
                        // One staging buffer for both: the input becomes the result.
                        Some(range) if is_linear && input.len() == output.len() => {
                            (range.clone(), None, vec![CopyRows::one(output, range.start)])
                        }
                        _ => self.pack(output, output_blocks),
                    };
                    (self.output, self.output_blocks) = (Some(range), packed);
                    self.store = if written == Used::Nothing { Vec::new() } else { merged(&rows) };
                }
            }
        }
    }

    /// Reserves host memory for a buffer, or for its blocks without the gaps between them.
    fn pack(
        &mut self,
        buffer: &[u8],
        blocks: Option<&Blocks>,
    ) -> (Range<usize>, Option<Blocks>, Vec<CopyRows>) {
        let Some(blocks) = blocks else {
            let range = self.take(buffer.len());
            let rows = vec![CopyRows::one(buffer, range.start)];
            return (range, None, rows);
        };
        let start = self.bytes.next_multiple_of(ALIGNMENT);
        let (mut end, mut packed, mut rows) = (start, Vec::new(), Vec::new());
        for block in blocks.iter() {
            rows.push(CopyRows::one(&buffer[block.clone()], end));
            packed.push(end - start..end - start + block.len());
            end += block.len();
        }
        self.bytes = end;
        (start..end, Some(Blocks::at(packed)), rows)
    }

    fn take(&mut self, bytes: usize) -> Range<usize> {
        let start = self.bytes.next_multiple_of(ALIGNMENT);
        self.bytes = start + bytes;
        start..self.bytes
    }

    /// Replaces the device memory of an operation by the staged host memory.
    pub fn apply<'a>(&self, mut op: Op<'a>, memory: &'a mut [u8]) -> Op<'a> {
        if let Some(range) = &self.scalar {
            let mut scalar = [0; 8];
            scalar[..range.len()].copy_from_slice(&memory[range.clone()]);
            op.set_scalar(scalar);
        }
        let OpMemory { sent, received, buffers, buckets } = op.memory;
        let sent = self.input_blocks.clone().unwrap_or(sent);
        let received = self.output_blocks.clone().unwrap_or(received);
        op.memory = if buckets.is_empty() {
            OpMemory { sent, received, buffers: self.staged_buffers(buffers, memory), buckets }
        } else {
            OpMemory { sent, received, buffers, buckets: self.staged_buckets(buckets, memory) }
        };
        op
    }

    fn staged_buffers<'a>(&self, buffers: Buffers<'a>, memory: &'a mut [u8]) -> Buffers<'a> {
        match (&self.input, &self.output) {
            (Some(input), Some(output)) if input == output => {
                Buffers::Shared { both: &mut memory[output.clone()] }
            }
            (Some(input), Some(output)) => {
                let (input, output) = blocks::two_parts(memory, input, output);
                Buffers::Apart { input, output }
            }
            (from, to) => match buffers {
                Buffers::Apart { input, output } => match (from, to) {
                    (Some(range), _) => Buffers::Apart { input: &memory[range.clone()], output },
                    (_, Some(range)) => {
                        Buffers::Apart { input, output: &mut memory[range.clone()] }
                    }
                    _ => Buffers::Apart { input, output },
                },
                shared => shared,
            },
        }
    }

    fn staged_buckets<'a>(
        &self,
        buckets: Vec<&'a mut [u8]>,
        memory: &'a mut [u8],
    ) -> Vec<&'a mut [u8]> {
        let ranges: Vec<_> =
            self.buckets.iter().map(|range| range.clone().unwrap_or_default()).collect();
        let both = buckets.into_iter().zip(blocks::cut(memory, &ranges)).zip(&self.buckets);
        let chosen = both.map(|((own, staged), range)| match range {
            Some(_) => staged,
            None => own,
        });
        chosen.collect()
    }

    /// The layout of a message to send.
    pub fn of_outgoing(outgoing: &Outgoing<'_>, device: &OnDevice) -> Self {
        let mut layout = Self::default();
        if device.has(outgoing.bytes) {
            let (range, _, rows) = layout.pack(outgoing.bytes, None);
            (layout.input, layout.fetch) = (Some(range), rows);
        }
        layout
    }

    pub fn apply_outgoing<'a>(&self, outgoing: Outgoing<'a>, memory: &'a [u8]) -> Outgoing<'a> {
        let bytes = self.input.clone().map_or(outgoing.bytes, |range| &memory[range]);
        Outgoing { bytes, ..outgoing }
    }

    /// The layout of a message to receive.
    pub fn of_incoming(incoming: &Incoming<'_>, device: &OnDevice) -> Self {
        let mut layout = Self::default();
        if device.has(incoming.into) {
            let (range, _, rows) = layout.pack(incoming.into, None);
            (layout.output, layout.store) = (Some(range), rows);
        }
        layout
    }

    pub fn apply_incoming<'a>(&self, incoming: Incoming<'a>, memory: &'a mut [u8]) -> Incoming<'a> {
        match &self.output {
            Some(range) => Incoming { into: &mut memory[range.clone()], ..incoming },
            None => incoming,
        }
    }

    /// The ranges of host memory that are copied out.
    pub fn stored(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.store.iter().flat_map(|rows| {
            (0..rows.count).map(|row| {
                let start = rows.host + row * rows.host_pitch;
                start..start + rows.width
            })
        })
    }
}

impl CopyRows {
    /// The same rows, `by` bytes further in host memory.
    pub fn moved(&self, by: usize) -> Self {
        Self { host: self.host + by, ..*self }
    }

    fn one(buffer: &[u8], host: usize) -> Self {
        Self::at(buffer.as_ptr().addr() as u64, buffer.len(), host)
    }

    fn at(device: u64, width: usize, host: usize) -> Self {
        Self { device, device_pitch: width, host, host_pitch: width, width, count: 1 }
    }
}

/// Merges rows of equal width at equal distances into one copy. Empty rows are dropped.
fn merged(rows: &[CopyRows]) -> Vec<CopyRows> {
    let mut all: Vec<CopyRows> = Vec::new();
    for next in rows.iter().filter(|rows| rows.width > 0) {
        let Some(last) = all.last_mut().filter(|last| last.width == next.width) else {
            all.push(*next);
            continue;
        };
        let device_pitch = next.device.wrapping_sub(last.device) as usize;
        let host_pitch = next.host.wrapping_sub(last.host);
        let follows = match last.count {
            1 => next.device > last.device && next.host > last.host && device_pitch >= last.width,
            count => {
                device_pitch == count * last.device_pitch && host_pitch == count * last.host_pitch
            }
        };
        match (follows, last.count) {
            (false, _) => all.push(*next),
            (true, 1) => {
                (last.device_pitch, last.host_pitch) = (device_pitch, host_pitch);
                last.count = 2;
            }
            (true, _) => last.count += 1,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;
    use crate::op::{Counts, Fold, RedOp, Reducer};

    const ME: RankOf = RankOf { rank: Rank(1), size: 3 };

    fn on(buffers: &[&[u8]]) -> OnDevice {
        OnDevice(buffers.iter().map(|bytes| range_of(bytes)).collect())
    }

    fn range_of(bytes: &[u8]) -> Range<usize> {
        bytes.as_ptr().addr()..bytes.as_ptr().addr() + bytes.len()
    }

    /// The range of each row in the buffer, and its offset in host memory.
    fn copies(rows: &[CopyRows], buffer: Range<usize>) -> Vec<(Range<usize>, usize)> {
        let each = |rows: &CopyRows| {
            let (device, rows) = (rows.device as usize - buffer.start, *rows);
            (0..rows.count).map(move |row| {
                let start = device + row * rows.device_pitch;
                (start..start + rows.width, rows.host + row * rows.host_pitch)
            })
        };
        rows.iter().flat_map(each).collect()
    }

    fn sum() -> Reducer {
        Reducer::Known(Fold::new(DataType::Int8, RedOp::Sum).unwrap())
    }

    #[test]
    fn two_linear_buffers_of_a_device_share_one_staging_buffer() {
        let (input, mut output) = ([1; 100], [2; 100]);
        let (device, ranges) = (on(&[&input, &output]), (range_of(&input), range_of(&output)));
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        let op = Op::all_reduce(100, sum(), buffers);
        let layout = StagingLayout::of(&op, ME, &device);
        assert_eq!(layout.bytes, 100);
        assert_eq!(copies(&layout.fetch, ranges.0), [(0..100, 0)]);
        assert_eq!(copies(&layout.store, ranges.1), [(0..100, 0)]);
        let mut memory = [9; 100];
        let buffers = layout.apply(op, &mut memory).memory.buffers;
        assert!(matches!(buffers, Buffers::Shared { both } if both == [9; 100]));
    }

    #[test]
    fn buffers_in_host_memory_are_not_staged() {
        let (input, mut output) = ([1; 100], [2; 100]);
        let device = on(&[&output]);
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        let op = Op::all_reduce(100, sum(), buffers);
        let layout = StagingLayout::of(&op, ME, &device);
        assert!(layout.fetch.is_empty());
        let mut memory = [9; 100];
        let buffers = layout.apply(op, &mut memory).memory.buffers;
        assert!(matches!(buffers, Buffers::Apart { input: [1, ..], output: [9, ..] }));
    }

    #[test]
    fn blocks_with_gaps_are_packed_and_only_used_blocks_are_copied() {
        let mut both = [0; 90];
        let (device, range) = (on(&[&both]), range_of(&both));
        let blocks = Blocks::at(vec![0..20, 30..50, 60..80]);
        let (counts, dtype) = (Counts::listed(&[20; 3]), DataType::Int8);
        let buffers = Buffers::Shared { both: &mut both };
        let op = Op::all_gather(counts, dtype.into(), blocks, buffers);
        let layout = StagingLayout::of(&op, ME, &device);
        assert_eq!(layout.bytes, 60);
        assert_eq!(copies(&layout.fetch, range.clone()), [(30..50, 20)]);
        assert_eq!(layout.store.len(), 1, "rows at equal distances are one copy");
        assert_eq!(copies(&layout.store, range), [(0..20, 0), (30..50, 20), (60..80, 40)]);
        let mut memory = [9; 60];
        let OpMemory { received, buffers, .. } = layout.apply(op, &mut memory).memory;
        assert_eq!(received.iter().collect::<Vec<_>>(), [0..20, 20..40, 40..60]);
        assert_eq!(buffers.input(), [9; 60]);
    }

    #[test]
    fn a_rank_without_a_result_stores_nothing() {
        let (input, mut output) = ([1; 8], [2; 8]);
        let device = on(&[&input, &output]);
        let function = std::sync::Arc::new(|_: &[u8], _: &mut [u8]| {});
        let reducer = Reducer::User { dtype: DataType::Int8.into(), commutative: true, function };
        let buffers = Buffers::Apart { input: &input, output: &mut output };
        let op = Op::ex_scan(8, reducer, buffers);
        let first = RankOf { rank: Rank(0), ..ME };
        assert!(StagingLayout::of(&op, first, &device).store.is_empty());
        assert!(!StagingLayout::of(&op, ME, &device).store.is_empty());
    }

    #[test]
    fn rows_are_merged_only_if_their_distances_are_equal() {
        let row = |device, host, width| CopyRows::at(device, width, host);
        let even = merged(&[row(100, 0, 8), row(150, 8, 8), row(200, 16, 8)]);
        assert_eq!((even.len(), even[0].count, even[0].device_pitch), (1, 3, 50));
        assert_eq!(merged(&[row(100, 0, 8), row(150, 8, 8), row(210, 16, 8)]).len(), 2);
        assert_eq!(merged(&[row(200, 0, 8), row(100, 8, 8)]).len(), 2, "backwards");
        assert_eq!(merged(&[row(100, 0, 8), row(150, 8, 4)]).len(), 2);
        assert_eq!(merged(&[row(100, 0, 0)]).len(), 0);
    }
}

//! Host memory in the place of a device's: where the parts of an operation lie in it, and what is copied.
//!
//! Slices of device memory are only addresses here: nothing reads or writes through them. Leaves to `cuda` who
//! copies and when. Invariants: what an operation reads is fetched before it, what it writes is stored after
//! it, and nothing else of the caller's is changed; parts of one operation never overlap in host memory.

use std::ops::Range;

use crate::blocks::{self, Blocks};
use crate::buffer::Buffers;
use crate::message::{Incoming, Outgoing};
use crate::op::{Op, Operator};
use crate::rank::{Place, Rank};

/// Parts begin at a multiple of this: of a line, so that no two share one.
const ALIGNMENT: usize = 64;

/// Addresses that lie on a device.
#[derive(Clone, Debug, Default)]
pub(super) struct OnDevice(pub Vec<Range<usize>>);

impl OnDevice {
    fn has(&self, bytes: &[u8]) -> bool {
        let address = bytes.as_ptr().addr();
        !bytes.is_empty() && self.0.iter().any(|range| range.contains(&address))
    }
}

/// Rows to be copied between a device and host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub device: u64,
    pub device_pitch: usize,
    /// Where it is in host memory.
    pub host: usize,
    pub host_pitch: usize,
    pub width: usize,
    pub count: usize,
}

/// Where the parts of an operation lie in host memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Of the input, if it is there; the same as the output's if it is in place there.
    input: Option<Range<usize>>,
    output: Option<Range<usize>>,
    input_blocks: Option<Blocks>,
    output_blocks: Option<Blocks>,
    buckets: Vec<Option<Range<usize>>>,
    pub fetch: Vec<Rows>,
    pub store: Vec<Rows>,
    /// How much memory it takes.
    pub bytes: usize,
}

/// What of a buffer an operation uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    All,
    /// This rank's block.
    Own,
    Nothing,
}

/// What an operation does with its buffers.
struct Use<'o, 'a> {
    buffers: &'o Buffers<'a>,
    input_blocks: Option<&'o Blocks>,
    output_blocks: Option<&'o Blocks>,
    /// In place; of buffers that are apart all or nothing is used.
    read: Used,
    written: Used,
}

impl<'o, 'a> Use<'o, 'a> {
    /// `None` for what has no such buffers.
    fn of(op: &'o Op<'a>, place: Place) -> Option<Self> {
        let linear = |buffers, read, written| {
            Some(Self { buffers, input_blocks: None, output_blocks: None, read, written })
        };
        let if_so = |condition| if condition { Used::All } else { Used::Nothing };
        match op {
            Op::AllReduce { buffers, .. } | Op::Scan { buffers, .. } => {
                linear(buffers, Used::All, Used::All)
            }
            Op::ExScan { buffers, reducer, .. } => {
                let is_user = matches!(reducer.reduction().operator, Operator::User { .. });
                linear(buffers, Used::All, if_so(!(is_user && place.rank == Rank(0))))
            }
            Op::Reduce { buffers, root, .. } => {
                linear(buffers, Used::All, if_so(place.rank == *root))
            }
            Op::Broadcast { buffers, root, .. } => {
                linear(buffers, if_so(place.rank == *root), Used::All)
            }
            Op::AllGather { buffers, blocks, .. } | Op::Gather { buffers, blocks, .. } => {
                let (read, written) = (Used::Own, Used::All);
                let output_blocks = Some(blocks);
                Some(Self { buffers, input_blocks: None, output_blocks, read, written })
            }
            Op::ReduceScatter { buffers, blocks, .. } => {
                let (read, written) = (Used::All, Used::Own);
                let input_blocks = Some(blocks);
                Some(Self { buffers, input_blocks, output_blocks: None, read, written })
            }
            Op::Scatter { buffers, blocks, .. } => {
                let (read, written) = (Used::All, Used::Own);
                let input_blocks = Some(blocks);
                Some(Self { buffers, input_blocks, output_blocks: None, read, written })
            }
            Op::AllToAll { buffers, sent, received, .. } => Some(Self {
                buffers,
                input_blocks: Some(sent),
                output_blocks: Some(received),
                read: Used::All,
                written: Used::All,
            }),
            Op::AllReduceBucketed { .. } | Op::Barrier | Op::Split { .. } => None,
        }
    }
}

impl Layout {
    /// Of an operation or a piece of one.
    pub fn of(op: &Op<'_>, place: Place, device: &OnDevice) -> Self {
        let mut layout = Self::default();
        if let Op::AllReduceBucketed { buckets, .. } = op {
            for bucket in buckets {
                let place = device.has(bucket).then(|| {
                    let place = layout.take(bucket.len());
                    layout.fetch.push(Rows::one(bucket, place.start));
                    place
                });
                layout.buckets.push(place);
            }
            layout.store = layout.fetch.clone();
        }
        if let Some(uses) = Use::of(op, place) {
            layout.place(&uses, place, device);
        }
        layout.fetch = merged(&layout.fetch);
        layout.store = merged(&layout.store);
        layout
    }

    fn place(&mut self, uses: &Use<'_, '_>, place: Place, device: &OnDevice) {
        let Use { buffers, input_blocks, output_blocks, read, written } = *uses;
        match buffers {
            Buffers::Shared { both } if device.has(both) => {
                let blocks = input_blocks.or(output_blocks);
                let (range, packed, rows) = self.pack(both, blocks);
                let used = |used| match used {
                    Used::All => rows.clone(),
                    Used::Own => rows[place.rank.0..=place.rank.0].to_vec(),
                    Used::Nothing => Vec::new(),
                };
                (self.fetch, self.store) = (used(read), used(written));
                (self.input, self.output) = (Some(range.clone()), Some(range));
                self.input_blocks = input_blocks.and(packed.clone());
                self.output_blocks = output_blocks.and(packed);
            }
            Buffers::Shared { .. } => {}
            Buffers::Apart { input, output } => {
                if device.has(input) && read != Used::Nothing {
                    let (range, packed, rows) = self.pack(input, input_blocks);
                    (self.input, self.input_blocks, self.fetch) = (Some(range), packed, rows);
                }
                if device.has(output) {
                    let is_linear = input_blocks.is_none() && output_blocks.is_none();
                    let (range, packed, rows) = match &self.input {
                        // One place for both: what is fetched becomes the result.
                        Some(range) if is_linear && input.len() == output.len() => {
                            (range.clone(), None, vec![Rows::one(output, range.start)])
                        }
                        _ => self.pack(output, output_blocks),
                    };
                    (self.output, self.output_blocks) = (Some(range), packed);
                    self.store = if written == Used::Nothing { Vec::new() } else { rows };
                }
            }
        }
    }

    /// Finds a place for a buffer, or for the blocks of one, side by side.
    fn pack(
        &mut self,
        buffer: &[u8],
        blocks: Option<&Blocks>,
    ) -> (Range<usize>, Option<Blocks>, Vec<Rows>) {
        let Some(blocks) = blocks else {
            let range = self.take(buffer.len());
            let rows = vec![Rows::one(buffer, range.start)];
            return (range, None, rows);
        };
        let start = self.bytes.next_multiple_of(ALIGNMENT);
        let (mut end, mut packed, mut rows) = (start, Vec::new(), Vec::new());
        for block in blocks.iter() {
            rows.push(Rows::one(&buffer[block.clone()], end));
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

    /// The operation, with host memory in the place of the device's.
    pub fn apply<'a>(&self, op: Op<'a>, memory: &'a mut [u8]) -> Op<'a> {
        let staged = |buffers: Buffers<'a>, memory: &'a mut [u8]| match (&self.input, &self.output)
        {
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
        };
        let input_blocks = |blocks: Blocks| self.input_blocks.clone().unwrap_or(blocks);
        let output_blocks = |blocks: Blocks| self.output_blocks.clone().unwrap_or(blocks);
        match op {
            Op::AllReduce { count, reducer, buffers } => {
                Op::AllReduce { count, reducer, buffers: staged(buffers, memory) }
            }
            Op::Reduce { count, reducer, root, buffers } => {
                Op::Reduce { count, reducer, root, buffers: staged(buffers, memory) }
            }
            Op::Broadcast { count, dtype, root, buffers } => {
                Op::Broadcast { count, dtype, root, buffers: staged(buffers, memory) }
            }
            Op::Scan { count, reducer, buffers } => {
                Op::Scan { count, reducer, buffers: staged(buffers, memory) }
            }
            Op::ExScan { count, reducer, buffers } => {
                Op::ExScan { count, reducer, buffers: staged(buffers, memory) }
            }
            Op::AllGather { counts, dtype, blocks, buffers } => Op::AllGather {
                counts,
                dtype,
                blocks: output_blocks(blocks),
                buffers: staged(buffers, memory),
            },
            Op::ReduceScatter { counts, reducer, blocks, buffers } => Op::ReduceScatter {
                counts,
                reducer,
                blocks: input_blocks(blocks),
                buffers: staged(buffers, memory),
            },
            Op::AllToAll { counts, dtype, sent, received, buffers } => Op::AllToAll {
                counts,
                dtype,
                sent: input_blocks(sent),
                received: output_blocks(received),
                buffers: staged(buffers, memory),
            },
            Op::Gather { counts, dtype, root, blocks, buffers } => Op::Gather {
                counts,
                dtype,
                root,
                blocks: output_blocks(blocks),
                buffers: staged(buffers, memory),
            },
            Op::Scatter { counts, dtype, root, blocks, buffers } => Op::Scatter {
                counts,
                dtype,
                root,
                blocks: input_blocks(blocks),
                buffers: staged(buffers, memory),
            },
            Op::AllReduceBucketed { counts, reducer, buckets } => {
                let places: Vec<_> =
                    self.buckets.iter().map(|place| place.clone().unwrap_or_default()).collect();
                let staged = blocks::cut(memory, &places);
                let both = buckets.into_iter().zip(staged).zip(&self.buckets);
                let chosen = both.map(|((own, staged), place)| match place {
                    Some(_) => staged,
                    None => own,
                });
                Op::AllReduceBucketed { counts, reducer, buckets: chosen.collect() }
            }
            Op::Barrier | Op::Split { .. } => op,
        }
    }

    /// Of a message to send.
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

    /// Of a message to receive.
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

    /// Where it stores from.
    pub fn stored(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.store.iter().flat_map(|rows| {
            (0..rows.count).map(|row| {
                let start = rows.host + row * rows.host_pitch;
                start..start + rows.width
            })
        })
    }
}

impl Rows {
    /// The same, so much further in host memory.
    pub fn moved(&self, by: usize) -> Self {
        Self { host: self.host + by, ..*self }
    }

    fn one(buffer: &[u8], host: usize) -> Self {
        let (device, width) = (buffer.as_ptr().addr() as u64, buffer.len());
        Self { device, device_pitch: width, host, host_pitch: width, width, count: 1 }
    }
}

/// Rows of the same width at even distances are one copy; empty ones are none.
fn merged(rows: &[Rows]) -> Vec<Rows> {
    let mut all: Vec<Rows> = Vec::new();
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

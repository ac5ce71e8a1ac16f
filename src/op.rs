//! Reduction operators, the call that all ranks must agree on, and an operation, which is a call
//! with this rank's memory.
//!
//! Nothing here moves or reduces data. Invariant: every value is valid by construction; `capi`
//! has refused invalid arguments.

mod call;
mod reduction;

use crate::blocks::Blocks;
use crate::buffer::Buffers;
use crate::dtype::ElementType;
use crate::rank::Rank;

pub use call::{Call, Collective, Counts};
pub use reduction::{Fold, Operator, RedOp, Reducer, Reduction, Scalar, UserFunction};

/// A call with this rank's reducer and memory: everything that a rank needs to execute it.
pub struct Op<'a> {
    call: Call,
    /// `Some` if the collective reduces.
    reducer: Option<Reducer>,
    pub memory: OpMemory<'a>,
}

/// Where an operation reads and writes on this rank.
pub struct OpMemory<'a> {
    /// The blocks of the input, one for each rank. Empty if the input is one block.
    pub sent: Blocks,
    /// The blocks of the output, one from each rank. Empty if the output is one block. In an
    /// all-to-all in place they are those of the input.
    pub received: Blocks,
    /// Empty if the collective takes no elements, or a list of buffers.
    pub buffers: Buffers<'a>,
    /// The list of buffers, each of which is input and output. Empty if the collective has none.
    pub buckets: Vec<&'a mut [u8]>,
}

impl<'a> OpMemory<'a> {
    /// Two buffers of one block each.
    #[inline(always)]
    fn linear(buffers: Buffers<'a>) -> Self {
        Self { sent: Blocks::EMPTY, received: Blocks::EMPTY, buffers, buckets: Vec::new() }
    }

    /// A buffer of one block, and one with a block from each rank.
    #[inline(always)]
    fn gathering(received: Blocks, buffers: Buffers<'a>) -> Self {
        Self { received, ..Self::linear(buffers) }
    }

    /// A buffer with a block for each rank, and one of one block.
    #[inline(always)]
    fn scattering(sent: Blocks, buffers: Buffers<'a>) -> Self {
        Self { sent, ..Self::linear(buffers) }
    }
}

/// One constructor for each collective. Blocks that only the root passes are empty elsewhere.
impl<'a> Op<'a> {
    #[inline(always)]
    pub fn all_reduce(count: usize, reducer: Reducer, buffers: Buffers<'a>) -> Self {
        let call = Call::all_reduce(count, reducer.reduction());
        Self::reducing(call, reducer, OpMemory::linear(buffers))
    }

    #[inline(always)]
    pub fn reduce(count: usize, reducer: Reducer, root: Rank, buffers: Buffers<'a>) -> Self {
        let call = Call::reduce(count, reducer.reduction(), root);
        Self::reducing(call, reducer, OpMemory::linear(buffers))
    }

    #[inline(always)]
    pub fn broadcast(count: usize, dtype: ElementType, root: Rank, buffers: Buffers<'a>) -> Self {
        Self::moving(Call::broadcast(count, dtype, root), OpMemory::linear(buffers))
    }

    /// `blocks` of the output.
    #[inline(always)]
    pub fn all_gather(
        counts: Counts,
        dtype: ElementType,
        blocks: Blocks,
        buffers: Buffers<'a>,
    ) -> Self {
        Self::moving(Call::all_gather(counts, dtype), OpMemory::gathering(blocks, buffers))
    }

    /// `blocks` of the input.
    #[inline(always)]
    pub fn reduce_scatter(
        counts: Counts,
        reducer: Reducer,
        blocks: Blocks,
        buffers: Buffers<'a>,
    ) -> Self {
        let call = Call::reduce_scatter(counts, reducer.reduction());
        Self::reducing(call, reducer, OpMemory::scattering(blocks, buffers))
    }

    #[inline(always)]
    pub fn all_to_all(
        counts: Counts,
        dtype: ElementType,
        sent: Blocks,
        received: Blocks,
        buffers: Buffers<'a>,
    ) -> Self {
        let memory = OpMemory { sent, ..OpMemory::gathering(received, buffers) };
        Self::moving(Call::all_to_all(counts, dtype), memory)
    }

    /// `blocks` of the root's output.
    #[inline(always)]
    pub fn gather(
        counts: Counts,
        dtype: ElementType,
        root: Rank,
        blocks: Blocks,
        buffers: Buffers<'a>,
    ) -> Self {
        Self::moving(Call::gather(counts, dtype, root), OpMemory::gathering(blocks, buffers))
    }

    /// `blocks` of the root's input.
    #[inline(always)]
    pub fn scatter(
        counts: Counts,
        dtype: ElementType,
        root: Rank,
        blocks: Blocks,
        buffers: Buffers<'a>,
    ) -> Self {
        Self::moving(Call::scatter(counts, dtype, root), OpMemory::scattering(blocks, buffers))
    }

    #[inline(always)]
    pub fn scan(count: usize, reducer: Reducer, buffers: Buffers<'a>) -> Self {
        let call = Call::scan(count, reducer.reduction());
        Self::reducing(call, reducer, OpMemory::linear(buffers))
    }

    #[inline(always)]
    pub fn ex_scan(count: usize, reducer: Reducer, buffers: Buffers<'a>) -> Self {
        let call = Call::ex_scan(count, reducer.reduction());
        Self::reducing(call, reducer, OpMemory::linear(buffers))
    }

    #[inline(always)]
    pub fn all_reduce_bucketed(
        counts: Counts,
        reducer: Reducer,
        buckets: Vec<&'a mut [u8]>,
    ) -> Self {
        let call = Call::all_reduce_bucketed(counts, reducer.reduction());
        let memory = OpMemory { buckets, ..OpMemory::linear(Buffers::none()) };
        Self::reducing(call, reducer, memory)
    }

    #[inline(always)]
    pub fn barrier() -> Self {
        Self::moving(Call::barrier(), OpMemory::linear(Buffers::none()))
    }

    /// `entries` has one entry from each of `ranks` ranks. This rank has written its own.
    pub fn split(entries: &'a mut [u8], ranks: usize) -> Self {
        let blocks = Blocks::equal(entries.len() / ranks, ranks);
        let buffers = Buffers::Shared { both: entries };
        Self::moving(Call::split(), OpMemory::gathering(blocks, buffers))
    }

    #[inline(always)]
    fn reducing(call: Call, reducer: Reducer, memory: OpMemory<'a>) -> Self {
        Self { call, reducer: Some(reducer), memory }
    }

    #[inline(always)]
    fn moving(call: Call, memory: OpMemory<'a>) -> Self {
        Self { call, reducer: None, memory }
    }
}

impl<'a> Op<'a> {
    #[inline(always)]
    pub fn call(&self) -> Call {
        self.call
    }

    /// `None` if the collective does not reduce.
    #[inline(always)]
    pub fn reducer(&self) -> Option<&Reducer> {
        self.reducer.as_ref()
    }

    /// The reducer and, to be written, the memory.
    #[inline(always)]
    pub fn parts_mut(&mut self) -> (Option<&Reducer>, &mut OpMemory<'a>) {
        (self.reducer.as_ref(), &mut self.memory)
    }

    /// The parts of an operation that reduces. Panics if the collective does not reduce.
    pub fn reduction_mut(&mut self) -> (&Reducer, &mut OpMemory<'a>) {
        (self.reducer.as_ref().expect("the collective reduces"), &mut self.memory)
    }

    /// Panics if the collective has no root.
    pub fn root(&self) -> Rank {
        self.call.root().expect("the collective has a root")
    }

    /// The same collective on a part of the memory, with the counts of that part.
    pub fn part<'b>(
        &'b mut self,
        part: impl FnOnce(&'b mut OpMemory<'a>) -> (Counts, OpMemory<'b>),
    ) -> Op<'b> {
        let (counts, memory) = part(&mut self.memory);
        Op { call: self.call.with_counts(counts), reducer: self.reducer.clone(), memory }
    }

    /// The number of bytes that this rank reads.
    pub fn input_bytes(&self) -> usize {
        let OpMemory { buffers, buckets, .. } = &self.memory;
        buffers.input().len() + buckets.iter().map(|bucket| bucket.len()).sum::<usize>()
    }

    /// The address of this rank's scalar, if a stream must copy it, and its length in bytes.
    pub fn scalar_of_stream(&self) -> Option<(u64, usize)> {
        match &self.reducer {
            Some(Reducer::PreMulSum {
                sum,
                scalar: Scalar::OnDevice(address) | Scalar::Pinned { address, .. },
            }) => Some((*address, sum.dtype().size())),
            _ => None,
        }
    }

    /// Stores the scalar that a stream has copied.
    pub fn set_scalar(&mut self, copied: [u8; 8]) {
        if let Some(Reducer::PreMulSum { scalar, .. }) = &mut self.reducer {
            *scalar = Scalar::Here(copied);
        }
    }

    /// The buffers that the caller passed, with the names of its parameters.
    pub fn named_buffers(&self) -> Vec<(&'static str, &[u8])> {
        let OpMemory { buffers, buckets, .. } = &self.memory;
        match (self.call.collective(), buffers) {
            (Collective::Barrier | Collective::Split, _) => Vec::new(),
            (Collective::AllReduceBucketed, _) => {
                buckets.iter().map(|bucket| ("a buffer of buffs", &**bucket)).collect()
            }
            (_, Buffers::Apart { input, output }) => {
                vec![("sendbuff", input), ("recvbuff", output)]
            }
            (_, Buffers::Shared { both }) => vec![("recvbuff", both)],
        }
    }
}

//! The call that all ranks of a communicator must agree on: a collective and its arguments.
//!
//! `Collective::shape` is the table of all collectives. Leaves buffers to `Op` and the encoding of
//! a call to `transport::wire`. Invariant: a call has exactly the arguments that its collective
//! takes.

use std::fmt;

use super::reduction::{Operator, Reduction};
use crate::dtype::ElementType;
use crate::rank::Rank;

/// How many elements a call moves, as far as all ranks know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// The same number in every block.
    Each(usize),
    /// The sum and the digest of a list that every rank passes alike. The list is not sent.
    Listed { total: usize, digest: u32 },
    /// Each pair of ranks has its own count.
    Pairwise,
}

impl Counts {
    pub fn listed(counts: &[usize]) -> Self {
        let bytes: Vec<_> = counts.iter().flat_map(|count| (*count as u64).to_le_bytes()).collect();
        Self::Listed { total: counts.iter().sum(), digest: crc32c::crc32c(&bytes) }
    }
}

/// A collective. The number of a variant is its code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Collective {
    AllReduce = 1,
    Reduce = 2,
    Broadcast = 3,
    AllGather = 4,
    ReduceScatter = 5,
    Barrier = 6,
    AllToAll = 7,
    Gather = 8,
    Scatter = 9,
    Scan = 10,
    ExScan = 11,
    AllReduceBucketed = 12,
    /// Every rank passes a color and a key, which may differ between ranks.
    Split = 13,
}

/// Which arguments a collective takes.
struct Shape {
    name: &'static str,
    /// The name of the variant whose blocks differ in length.
    varying: &'static str,
    /// How the caller counts elements.
    counted: Counted,
    reduces: bool,
    has_root: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// The caller passes no elements.
    Not,
    /// One count.
    Whole,
    /// One count for all blocks, or one for each block.
    Blocks,
}

impl Collective {
    pub const ALL: [Self; 13] = [
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Barrier,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Scan,
        Self::ExScan,
        Self::AllReduceBucketed,
        Self::Split,
    ];

    #[inline(always)]
    const fn shape(self) -> Shape {
        use Counted::{Blocks, Not, Whole};
        const fn shape(
            [name, varying]: [&'static str; 2],
            counted: Counted,
            [reduces, has_root]: [bool; 2],
        ) -> Shape {
            Shape { name, varying, counted, reduces, has_root }
        }
        match self {
            // Names; how it is counted; whether it reduces and has a root.
            Self::AllReduce => shape(["AllReduce"; 2], Whole, [true, false]),
            Self::Reduce => shape(["Reduce"; 2], Whole, [true, true]),
            Self::Broadcast => shape(["Broadcast"; 2], Whole, [false, true]),
            Self::AllGather => shape(["AllGather", "AllGatherV"], Blocks, [false, false]),
            Self::ReduceScatter => {
                shape(["ReduceScatter", "ReduceScatterV"], Blocks, [true, false])
            }
            Self::Barrier => shape(["Barrier"; 2], Not, [false, false]),
            Self::AllToAll => shape(["AllToAll", "AllToAllV"], Blocks, [false, false]),
            Self::Gather => shape(["Gather", "GatherV"], Blocks, [false, true]),
            Self::Scatter => shape(["Scatter", "ScatterV"], Blocks, [false, true]),
            Self::Scan => shape(["Scan"; 2], Whole, [true, false]),
            Self::ExScan => shape(["ExScan"; 2], Whole, [true, false]),
            Self::AllReduceBucketed => shape(["AllReduceBucketed"; 2], Blocks, [true, false]),
            Self::Split => shape(["Split"; 2], Not, [false, false]),
        }
    }

    /// The collective with this code on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|collective| *collective as u8 == code)
    }

    /// Whether elements of several ranks are reduced.
    #[inline(always)]
    pub fn reduces(self) -> bool {
        self.shape().reduces
    }

    /// Whether the caller passes elements.
    #[inline(always)]
    pub fn has_data(self) -> bool {
        self.shape().counted != Counted::Not
    }
}

/// The arguments that every rank of a communicator must pass alike in its call number `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    collective: Collective,
    counts: Counts,
    /// `None` if the caller passes no elements.
    dtype: Option<ElementType>,
    /// `None` if the collective does not reduce.
    operator: Option<Operator>,
    /// Rank 0 if the collective has no root. In 32 bits, because an `Error` holds two calls.
    root: u32,
}

const NO_ROOT: Rank = Rank(0);

/// One constructor for each collective.
impl Call {
    #[inline(always)]
    pub const fn all_reduce(count: usize, reduction: Reduction) -> Self {
        Self::reducing(Collective::AllReduce, Counts::Each(count), reduction, NO_ROOT)
    }

    #[inline(always)]
    pub const fn reduce(count: usize, reduction: Reduction, root: Rank) -> Self {
        Self::reducing(Collective::Reduce, Counts::Each(count), reduction, root)
    }

    #[inline(always)]
    pub const fn broadcast(count: usize, dtype: ElementType, root: Rank) -> Self {
        Self::moving(Collective::Broadcast, Counts::Each(count), dtype, root)
    }

    #[inline(always)]
    pub const fn all_gather(counts: Counts, dtype: ElementType) -> Self {
        Self::moving(Collective::AllGather, counts, dtype, NO_ROOT)
    }

    #[inline(always)]
    pub const fn reduce_scatter(counts: Counts, reduction: Reduction) -> Self {
        Self::reducing(Collective::ReduceScatter, counts, reduction, NO_ROOT)
    }

    #[inline(always)]
    pub const fn all_to_all(counts: Counts, dtype: ElementType) -> Self {
        Self::moving(Collective::AllToAll, counts, dtype, NO_ROOT)
    }

    #[inline(always)]
    pub const fn gather(counts: Counts, dtype: ElementType, root: Rank) -> Self {
        Self::moving(Collective::Gather, counts, dtype, root)
    }

    #[inline(always)]
    pub const fn scatter(counts: Counts, dtype: ElementType, root: Rank) -> Self {
        Self::moving(Collective::Scatter, counts, dtype, root)
    }

    #[inline(always)]
    pub const fn scan(count: usize, reduction: Reduction) -> Self {
        Self::reducing(Collective::Scan, Counts::Each(count), reduction, NO_ROOT)
    }

    #[inline(always)]
    pub const fn ex_scan(count: usize, reduction: Reduction) -> Self {
        Self::reducing(Collective::ExScan, Counts::Each(count), reduction, NO_ROOT)
    }

    #[inline(always)]
    pub const fn all_reduce_bucketed(counts: Counts, reduction: Reduction) -> Self {
        Self::reducing(Collective::AllReduceBucketed, counts, reduction, NO_ROOT)
    }

    #[inline(always)]
    pub const fn barrier() -> Self {
        Self::without_data(Collective::Barrier)
    }

    #[inline(always)]
    pub const fn split() -> Self {
        Self::without_data(Collective::Split)
    }

    #[inline(always)]
    const fn reducing(
        collective: Collective,
        counts: Counts,
        reduction: Reduction,
        root: Rank,
    ) -> Self {
        let Reduction { dtype, operator } = reduction;
        let (dtype, operator, root) = (Some(dtype), Some(operator), root.0 as u32);
        Self { collective, counts, dtype, operator, root }
    }

    #[inline(always)]
    const fn moving(
        collective: Collective,
        counts: Counts,
        dtype: ElementType,
        root: Rank,
    ) -> Self {
        let (dtype, root) = (Some(dtype), root.0 as u32);
        Self { collective, counts, dtype, operator: None, root }
    }

    #[inline(always)]
    const fn without_data(collective: Collective) -> Self {
        let counts = Counts::Each(0);
        Self { collective, counts, dtype: None, operator: None, root: 0 }
    }
}

impl Call {
    /// The call of a collective with the arguments that a peer sent. Those that the collective
    /// does not take are left out. `None` if the collective cannot have these counts, or if it
    /// reduces and there is no operator.
    pub fn received(
        collective: Collective,
        counts: Counts,
        dtype: ElementType,
        operator: Option<Operator>,
        root: Rank,
    ) -> Option<Self> {
        let shape = collective.shape();
        let root = if shape.has_root { root } else { NO_ROOT };
        match shape.counted {
            Counted::Not => return Some(Self::without_data(collective)),
            Counted::Whole if !matches!(counts, Counts::Each(_)) => return None,
            Counted::Whole | Counted::Blocks => {}
        }
        if !shape.reduces {
            return Some(Self::moving(collective, counts, dtype, root));
        }
        let reduction = Reduction { dtype, operator: operator? };
        Some(Self::reducing(collective, counts, reduction, root))
    }

    /// The same call on other counts.
    pub(super) fn with_counts(self, counts: Counts) -> Self {
        Self { counts, ..self }
    }

    #[inline(always)]
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// The name of the function of the API.
    pub fn name(&self) -> &'static str {
        let shape = self.collective.shape();
        match self.counts {
            Counts::Each(_) => shape.name,
            Counts::Listed { .. } | Counts::Pairwise => shape.varying,
        }
    }

    /// The type and the operator of the reduction. `None` if the collective does not reduce.
    #[inline(always)]
    pub fn reduction(&self) -> Option<Reduction> {
        let (dtype, operator) = self.dtype.zip(self.operator)?;
        Some(Reduction { dtype, operator })
    }

    /// Whether a function of the program reduces, which may take arbitrarily long.
    pub fn calls_program(&self) -> bool {
        matches!(self.operator, Some(Operator::User { .. }))
    }

    #[inline(always)]
    pub fn dtype(&self) -> Option<ElementType> {
        self.dtype
    }

    #[inline(always)]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// `None` if the collective has no root.
    #[inline(always)]
    pub fn root(&self) -> Option<Rank> {
        self.collective.shape().has_root.then_some(Rank(self.root as usize))
    }

    /// Bytes of the count that the caller passes: of one block, or of all blocks together if the
    /// caller passes a list. Zero if each rank knows only its own counts.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        let count = match self.counts {
            Counts::Each(count) | Counts::Listed { total: count, .. } => count,
            Counts::Pairwise => 0,
        };
        self.dtype.map_or(0, |dtype| count * dtype.size())
    }

    /// Whether the count is zero on all ranks, so that the call moves no data.
    pub fn is_empty(&self) -> bool {
        self.counts == Counts::Each(0) && self.collective.has_data()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name())?;
        match self.counts {
            _ if !self.collective.has_data() => {}
            Counts::Each(count) => write!(f, "{count} x ")?,
            Counts::Listed { total, digest } => write!(f, "{total} by list {digest:08x} x ")?,
            Counts::Pairwise => {}
        }
        match (self.reduction(), self.dtype) {
            (Some(reduction), _) => write!(f, "{reduction}")?,
            (None, Some(dtype)) => write!(f, "{dtype}")?,
            (None, None) => {}
        }
        match self.root() {
            Some(root) => write!(f, ", root {})", root.0),
            None => write!(f, ")"),
        }
    }
}

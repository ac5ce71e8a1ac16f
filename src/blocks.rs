//! How a buffer is divided among ranks: one block for each rank, in bytes.

use std::ops::Range;

/// The range of each rank's block. Blocks may leave gaps and may be in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks(BlockLayout);

#[derive(Clone, Debug, PartialEq, Eq)]
enum BlockLayout {
    /// `size` adjacent blocks of `least` elements each; the first `more` blocks have one element
    /// more. `element` is the size of an element. Most calls have such blocks, and need no list.
    Even {
        least: usize,
        more: usize,
        element: usize,
        size: usize,
    },
    At(Vec<Range<usize>>),
}

impl Blocks {
    /// No blocks at all.
    pub const EMPTY: Self = Self(BlockLayout::Even { least: 0, more: 0, element: 0, size: 0 });

    /// `size` adjacent blocks of `bytes` each.
    pub fn equal(bytes: usize, size: usize) -> Self {
        Self(BlockLayout::Even { least: 1, more: 0, element: bytes, size })
    }

    /// Adjacent blocks of `count` elements of `element` bytes: the first `count % size` blocks
    /// have one element more than the others.
    pub fn even(count: usize, element: usize, size: usize) -> Self {
        Self(BlockLayout::Even { least: count / size, more: count % size, element, size })
    }

    /// Blocks at the given ranges.
    pub fn at(ranges: Vec<Range<usize>>) -> Self {
        Self(BlockLayout::At(ranges))
    }

    /// Whether there is no block at all.
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    fn size(&self) -> usize {
        match &self.0 {
            BlockLayout::Even { size, .. } => *size,
            BlockLayout::At(ranges) => ranges.len(),
        }
    }

    /// Block `index` modulo the number of blocks: block `size` is block 0 again.
    pub fn get(&self, index: usize) -> Range<usize> {
        let index = if index < self.size() { index } else { index % self.size() };
        match &self.0 {
            BlockLayout::Even { least, more, element, .. } => {
                let start = |index: usize| element * (index * least + index.min(*more));
                start(index)..start(index + 1)
            }
            BlockLayout::At(ranges) => ranges[index].clone(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.size()).map(|index| self.get(index))
    }

    /// The length of the shortest buffer that contains all blocks.
    pub fn extent(&self) -> usize {
        match &self.0 {
            BlockLayout::Even { least, more, element, size } => element * (size * least + more),
            BlockLayout::At(ranges) => ranges.iter().map(|block| block.end).max().unwrap_or(0),
        }
    }

    /// The length of the longest block.
    pub fn longest(&self) -> usize {
        match &self.0 {
            BlockLayout::Even { size: 0, .. } => 0,
            BlockLayout::Even { .. } => self.get(0).len(),
            BlockLayout::At(ranges) => ranges.iter().map(Range::len).max().unwrap_or(0),
        }
    }

    /// Two blocks that share a byte.
    pub fn overlapping(&self) -> Option<(usize, usize)> {
        let mut full: Vec<_> =
            (0..self.size()).filter(|index| !self.get(*index).is_empty()).collect();
        full.sort_unstable_by_key(|index| self.get(*index).start);
        let pairs = full.windows(2).map(|pair| (pair[0], pair[1]));
        pairs.into_iter().find(|(one, other)| self.get(*one).end > self.get(*other).start)
    }
}

/// Cuts a buffer into the given parts, which do not overlap.
pub fn cut<'a>(mut buffer: &'a mut [u8], ranges: &[Range<usize>]) -> Vec<&'a mut [u8]> {
    let mut by_start: Vec<_> = (0..ranges.len()).collect();
    by_start.sort_unstable_by_key(|index| (ranges[*index].start, ranges[*index].end));
    let mut parts: Vec<&mut [u8]> = Vec::new();
    parts.resize_with(ranges.len(), Default::default);
    let mut begin = 0;
    for index in by_start {
        let Range { start, end } = ranges[index];
        // An empty part may be inside another; it needs no bytes of the buffer.
        if start < end {
            let rest = &mut buffer[start - begin..];
            (parts[index], buffer) = rest.split_at_mut(end - start);
            begin = end;
        }
    }
    parts
}

/// Two parts of a buffer that do not overlap.
pub fn two_parts<'a>(
    buffer: &'a mut [u8],
    one: &Range<usize>,
    other: &Range<usize>,
) -> (&'a mut [u8], &'a mut [u8]) {
    let mut parts = cut(buffer, &[one.clone(), other.clone()]).into_iter();
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_blocks_are_adjacent_and_differ_by_one_element_at_most() {
        for size in 1..20 {
            for count in 0..100 {
                let blocks = Blocks::even(count, 4, size);
                let mut end = 0;
                for index in 0..size {
                    let block = blocks.get(index);
                    assert_eq!(block.start, end);
                    end = block.end;
                    let expected = count / size + usize::from(index < count % size);
                    assert_eq!(block.len(), 4 * expected, "block {index} of {count} in {size}");
                }
                assert_eq!(end, 4 * count);
                assert_eq!(blocks.get(size), blocks.get(0));
                assert_eq!(blocks.extent(), end);
                assert_eq!(blocks.longest(), 4 * count.div_ceil(size));
            }
        }
    }

    #[test]
    fn overlapping_blocks_are_found_and_empty_blocks_overlap_none() {
        let overlapping = |ranges: &[Range<usize>]| Blocks::at(ranges.to_vec()).overlapping();
        assert_eq!(overlapping(&[4..8, 0..4, 8..9]), None);
        assert_eq!(overlapping(&[4..8, 5..5, 0..4]), None);
        assert_eq!(overlapping(&[0..4, 8..12, 3..5]), Some((0, 2)));
        assert_eq!(overlapping(&[0..9, 2..3]), Some((0, 1)));
    }

    #[test]
    fn a_buffer_is_cut_at_the_given_ranges() {
        let mut buffer: Vec<u8> = (0..20).collect();
        let parts = cut(&mut buffer, &[10..12, 0..0, 3..4, 11..11, 12..20]);
        assert_eq!(parts, [&[10, 11][..], &[], &[3], &[], &[12, 13, 14, 15, 16, 17, 18, 19]]);
    }
}

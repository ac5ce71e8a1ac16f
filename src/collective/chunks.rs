//! How `count` elements are shared out among `size` ranks: chunk `i` belongs to rank `i`, and the
//! first `count % size` chunks have one element more.

use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    count: usize,
    parts: usize,
    element: usize,
}

impl Chunks {
    /// `count` elements of `element` bytes in `parts` chunks.
    pub fn new(count: usize, parts: usize, element: usize) -> Self {
        Self { count, parts, element }
    }

    /// The bytes of chunk `index`, which counts round the ring: chunk `parts` is chunk 0 again.
    pub fn bytes(self, index: usize) -> Range<usize> {
        let index = index % self.parts;
        self.start(index) * self.element..self.start(index + 1) * self.element
    }

    fn start(self, index: usize) -> usize {
        index * (self.count / self.parts) + index.min(self.count % self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_without_gap_and_differ_by_one_element_at_most() {
        for parts in 1..20 {
            for count in 0..100 {
                let chunks = Chunks::new(count, parts, 4);
                let mut end = 0;
                for index in 0..parts {
                    let bytes = chunks.bytes(index);
                    assert_eq!(bytes.start, end);
                    end = bytes.end;
                    let expected = count / parts + usize::from(index < count % parts);
                    assert_eq!(bytes.len(), 4 * expected, "chunk {index} of {count} in {parts}");
                }
                assert_eq!(end, 4 * count);
                assert_eq!(chunks.bytes(parts), chunks.bytes(0));
            }
        }
    }
}

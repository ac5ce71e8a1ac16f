//! The caller's memory as slices: where a call reads and where it writes.
//!
//! The only file where a C pointer becomes a Rust slice. With CUDA the memory may be a device's,
//! which no processor can access. Such a slice is only an address and a length: no code reads or
//! writes through it, and `comm` replaces it by host memory. Invariant: the slices of one
//! `Buffers` never overlap; a call in place has one slice for both of its buffers.
#![expect(unsafe_code, reason = "raw pointers of the caller become slices here")]

use crate::error::{Error, Result};

/// Memory named by a C caller, not yet trusted.
#[derive(Clone, Copy)]
pub struct Region {
    /// The parameter's name in the header, for error texts.
    pub name: &'static str,
    pub address: *mut u8,
    pub bytes: usize,
}

/// What a call reads and writes.
pub enum Buffers<'a> {
    /// Input and output do not overlap. One that this rank does not pass is empty.
    Apart { input: &'a [u8], output: &'a mut [u8] },
    /// In place: the larger buffer, with the smaller inside it where the call defines it.
    Shared { both: &'a mut [u8] },
}

impl<'a> Buffers<'a> {
    /// Accepts two regions that are apart, or in place: the smaller beginning exactly `offset`
    /// bytes into the larger. Any other overlap, NULL or a region past the end of the address
    /// space is an argument error.
    ///
    /// # Safety
    /// Each region that is not NULL and not empty is memory of that many bytes. It stays alive for
    /// `'a`; meanwhile no other code writes it (input) or accesses it (output).
    #[inline(always)]
    pub unsafe fn from_raw(input: Region, output: Region, offset: usize) -> Result<Self> {
        let reads = input.range()?;
        let writes = output.range()?;
        if reads.is_empty()
            || writes.is_empty()
            || reads.end <= writes.start
            || writes.end <= reads.start
        {
            // SAFETY: the caller vouches for the regions; they were just found not to overlap.
            let input = unsafe { input.slice() };
            // SAFETY: as above.
            let output = unsafe { output.slice_mut() };
            return Ok(Buffers::Apart { input, output });
        }
        let (larger, smaller) =
            if reads.len() > writes.len() { (input, writes) } else { (output, reads) };
        if smaller.start != larger.address as usize + offset {
            return Err(Error::Argument(format!(
                "{} and {} overlap, but not as this call allows in place",
                input.name, output.name
            )));
        }
        // SAFETY: the caller vouches for the region; the smaller one is reached through it alone.
        let both = unsafe { larger.slice_mut() };
        Ok(Buffers::Shared { both })
    }

    /// The buffers of a call without data.
    #[inline(always)]
    pub fn none() -> Self {
        Buffers::Apart { input: &[], output: &mut [] }
    }

    /// The memory that the call reads. `None` in place.
    pub fn input_apart(&self) -> Option<&'a [u8]> {
        match self {
            Buffers::Apart { input, .. } => Some(input),
            Buffers::Shared { .. } => None,
        }
    }

    /// The memory that the call reads; in place, the larger buffer.
    pub fn input(&self) -> &[u8] {
        match self {
            Buffers::Apart { input, .. } => input,
            Buffers::Shared { both } => both,
        }
    }
}

impl Buffers<'_> {
    /// The same buffers, borrowed.
    pub fn reborrow(&mut self) -> Buffers<'_> {
        match self {
            Buffers::Apart { input, output } => Buffers::Apart { input, output },
            Buffers::Shared { both } => Buffers::Shared { both },
        }
    }

    /// The memory that the call writes; in place, the larger buffer.
    pub fn output_mut(&mut self) -> &mut [u8] {
        match self {
            Buffers::Apart { output, .. } => output,
            Buffers::Shared { both } => both,
        }
    }

    pub fn are_apart(&self) -> bool {
        matches!(self, Buffers::Apart { .. })
    }
}

/// The buffers of a list, each of which is read and written. Fails if two overlap.
///
/// # Safety
/// As for `Buffers::from_raw`.
pub unsafe fn list_from_raw<'a>(regions: &[Region]) -> Result<Vec<&'a mut [u8]>> {
    let mut full = Vec::new();
    for (index, region) in regions.iter().enumerate().filter(|(_, region)| region.bytes > 0) {
        let range =
            region.range().map_err(|why| Error::Argument(format!("buffer {index}: {why}")))?;
        full.push((range.start, range.end, index));
    }
    full.sort_unstable();
    if let Some(pair) = full.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        let (name, one, other) = (regions[0].name, pair[0].2, pair[1].2);
        return Err(Error::Argument(format!("{name}[{one}] and {name}[{other}] overlap")));
    }
    // SAFETY: the caller vouches for the regions; they were just found not to overlap.
    Ok(regions.iter().map(|region| unsafe { region.slice_mut() }).collect())
}

impl Region {
    /// A buffer that the call does not use on this rank. Its pointer is ignored.
    pub const UNUSED: Self = Self { name: "", address: std::ptr::null_mut(), bytes: 0 };

    #[inline(always)]
    fn range(&self) -> Result<std::ops::Range<usize>> {
        let start = self.address as usize;
        if self.bytes > 0 && start == 0 {
            return Err(Error::Argument(format!("{} is NULL", self.name)));
        }
        match start.checked_add(self.bytes) {
            Some(end) => Ok(start..end),
            None => Err(Error::Argument(format!(
                "{} runs past the end of the address space",
                self.name
            ))),
        }
    }

    /// # Safety
    /// As for `Buffers::from_raw`; no code writes the region for `'a`.
    unsafe fn slice<'a>(self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[]; // C programs pass any pointer, NULL included, with a length of zero.
        }
        // SAFETY: `range` found it neither NULL nor wrapping; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }

    /// # Safety
    /// As for `Buffers::from_raw`; no other code accesses the region for `'a`.
    unsafe fn slice_mut<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: `range` found it neither NULL nor wrapping; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

/// A copy of the bytes. Fails if no memory is available.
pub fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes.len()).map_err(|_| Error::out_of_memory(bytes.len()))?;
    memory.extend_from_slice(bytes);
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two regions of one array, as a C caller would pass them.
    fn parse(
        memory: &mut [u8],
        input: (usize, usize),
        output: (usize, usize),
        offset: usize,
    ) -> &'static str {
        let base = memory.as_mut_ptr();
        let region =
            |name, (start, bytes)| Region { name, address: base.wrapping_add(start), bytes };
        // SAFETY: all regions of these tests are inside `memory`, which outlives the result.
        match unsafe {
            Buffers::from_raw(region("sendbuff", input), region("recvbuff", output), offset)
        } {
            Ok(Buffers::Apart { .. }) => "apart",
            Ok(Buffers::Shared { .. }) => "in place",
            Err(_) => "refused",
        }
    }

    #[test]
    fn adjacent_buffers_are_apart_and_equal_buffers_in_place() {
        let mut memory = [0; 64];
        assert_eq!(parse(&mut memory, (0, 8), (8, 8), 0), "apart");
        assert_eq!(parse(&mut memory, (8, 8), (0, 8), 0), "apart");
        assert_eq!(parse(&mut memory, (8, 8), (8, 8), 0), "in place");
    }

    #[test]
    fn a_partial_overlap_is_refused_at_every_shift() {
        let mut memory = [0; 64];
        for shift in 1..8 {
            assert_eq!(parse(&mut memory, (16, 8), (16 + shift, 8), 0), "refused");
            assert_eq!(parse(&mut memory, (16 + shift, 8), (16, 8), 0), "refused");
        }
    }

    #[test]
    fn a_block_is_in_place_at_its_own_offset_only() {
        let mut memory = [0; 64];
        for start in 0..24 {
            let expected = if start == 16 { "in place" } else { "refused" };
            assert_eq!(parse(&mut memory, (start, 8), (0, 32), 16), expected, "gather {start}");
            assert_eq!(parse(&mut memory, (0, 32), (start, 8), 16), expected, "scatter {start}");
        }
    }

    #[test]
    fn an_empty_region_may_have_any_address_and_a_full_one_not_null() {
        let null = Region { name: "sendbuff", address: std::ptr::null_mut(), bytes: 8 };
        // SAFETY: NULL regions are refused or empty and never read.
        assert!(unsafe { Buffers::from_raw(null, Region::UNUSED, 0) }.is_err());
        let end = Region { name: "sendbuff", address: usize::MAX as *mut u8, bytes: 8 };
        // SAFETY: a region that wraps is refused and never read.
        assert!(unsafe { Buffers::from_raw(end, Region::UNUSED, 0) }.is_err());
        let empty = Region { bytes: 0, ..null };
        // SAFETY: empty regions are never read.
        assert!(unsafe { Buffers::from_raw(empty, Region::UNUSED, 0) }.is_ok());
    }
}

//! Memory of another process of this host, read by the system where it lies.
//!
//! Whether that is allowed is tried when ranks meet. Each process has a *sign*, random bytes at a place that it
//! tells, and with everything that is read the sign is read too. Invariant: what comes without the right sign is
//! not used: the number of a process that has ended may be another's by now.
#![expect(unsafe_code, reason = "the system is asked to read another process's memory")]

use std::sync::OnceLock;

use crate::transport::key::random;

/// Bytes that the system is asked for at once; it gives no more than two gigabytes.
const AT_ONCE: usize = 256 << 20;

const SIGN: usize = 16;

/// Where a process has its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    pub process: u64,
    pub address: u64,
    pub value: [u8; SIGN],
}

/// Of this process. `None` if it has no random numbers.
pub fn own() -> Option<Sign> {
    static VALUE: OnceLock<Option<[u8; SIGN]>> = OnceLock::new();
    let value = VALUE.get_or_init(|| random().ok()).as_ref()?;
    let process = std::process::id().into();
    Some(Sign { process, address: value.as_ptr().addr() as u64, value: *value })
}

impl Sign {
    /// Whether the process lets this one read its memory.
    pub fn is_readable(&self) -> bool {
        self.read(self.address, &mut [0; SIGN])
    }

    /// Reads what lies at an address of the process. False if that cannot be read, or is no longer its memory.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let pieces = into.chunks_mut(AT_ONCE).enumerate();
        pieces.into_iter().all(|(index, piece)| {
            let offset = (index * AT_ONCE) as u64;
            let address = address.checked_add(offset);
            address.is_some_and(|address| self.gather([(address, piece.len()), (0, 0)], piece))
        })
    }

    /// Whether the bytes at two addresses can be read.
    pub fn reads_both(&self, addresses: [u64; 2]) -> bool {
        self.gather(addresses.map(|address| (address, 1)), &mut [0; 2])
    }

    /// Reads what lies in two places of the process, one behind the other.
    fn gather(&self, places: [(u64, usize); 2], into: &mut [u8]) -> bool {
        let Ok(process) = libc::pid_t::try_from(self.process) else { return false };
        let mut sign = [0_u8; SIGN];
        let there = |address: u64, bytes| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address as usize),
            iov_len: bytes,
        };
        let here = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let wanted = into.len() + SIGN;
        let [one, other] = places.map(|(address, bytes)| there(address, bytes));
        let remote = [one, other, there(self.address, SIGN)];
        let local = [here(into), here(&mut sign)];
        // SAFETY: the system writes into the two local buffers alone, and no further than they go; of the
        // other process it reads what is there, or says that nothing is.
        let read =
            unsafe { libc::process_vm_readv(process, local.as_ptr(), 2, remote.as_ptr(), 3, 0) };
        read == wanted as isize && sign == self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_at_an_address_of_a_process_is_read_if_its_sign_is_right() {
        let sign = own().unwrap();
        let bytes: Vec<u8> = (0..100_000).map(|index| (index % 251) as u8).collect();
        let address = bytes.as_ptr().addr() as u64;
        let mut read = vec![0; bytes.len()];
        assert!(sign.is_readable() && sign.read(address, &mut read));
        assert_eq!(read, bytes);
        assert!(!sign.read(8, &mut read), "nothing lies there");
        assert!(!sign.read(u64::MAX - 8, &mut read));
        let another = Sign { value: [7; SIGN], ..sign };
        assert!(!another.is_readable() && !another.read(address, &mut read));
        assert!(!Sign { process: u64::MAX, ..sign }.is_readable());
    }
}

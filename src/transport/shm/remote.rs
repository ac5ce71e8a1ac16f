//! Memory of another process of this host, read by process_vm_readv(2).
//!
//! The handshake tries whether that is allowed. Each process has a *cookie*: random bytes at an
//! address that it publishes. Every read also reads the cookie. Invariant: bytes that are read
//! without the right cookie are not used, because the pid of a process that has ended may have been
//! reused.
#![expect(unsafe_code, reason = "the system is asked to read another process's memory")]

use std::sync::OnceLock;

use crate::transport::key::random;

/// Bytes of one system call, which reads at most 2 GiB.
const AT_ONCE: usize = 256 << 20;

const COOKIE: usize = 16;

/// The cookie of a process, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    pub process: u64,
    pub address: u64,
    pub value: [u8; COOKIE],
}

/// The cookie of this process. `None` if the system gives no random bytes.
pub fn own() -> Option<Cookie> {
    static VALUE: OnceLock<Option<[u8; COOKIE]>> = OnceLock::new();
    let value = VALUE.get_or_init(|| random().ok()).as_ref()?;
    let process = std::process::id().into();
    Some(Cookie { process, address: value.as_ptr().addr() as u64, value: *value })
}

impl Cookie {
    /// Whether the process lets this one read its memory.
    pub fn is_readable(&self) -> bool {
        self.read(self.address, &mut [0; COOKIE])
    }

    /// Copies memory of the process. False if it cannot be read, or the pid is another process's.
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

    /// Reads two ranges of the process, one behind the other. Each: address and length.
    fn gather(&self, ranges: [(u64, usize); 2], into: &mut [u8]) -> bool {
        let Ok(process) = libc::pid_t::try_from(self.process) else { return false };
        let mut cookie = [0_u8; COOKIE];
        let there = |address: u64, bytes| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address as usize),
            iov_len: bytes,
        };
        let here = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let wanted = into.len() + COOKIE;
        let [one, other] = ranges.map(|(address, bytes)| there(address, bytes));
        let remote = [one, other, there(self.address, COOKIE)];
        let local = [here(into), here(&mut cookie)];
        // SAFETY: the system writes only the two local buffers, within their lengths. An address of
        // the other process that is not mapped is an error, not a fault.
        let read =
            unsafe { libc::process_vm_readv(process, local.as_ptr(), 2, remote.as_ptr(), 3, 0) };
        read == wanted as isize && cookie == self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_read_if_its_cookie_is_right() {
        let cookie = own().unwrap();
        let bytes: Vec<u8> = (0..100_000).map(|index| (index % 251) as u8).collect();
        let address = bytes.as_ptr().addr() as u64;
        let mut read = vec![0; bytes.len()];
        assert!(cookie.is_readable() && cookie.read(address, &mut read));
        assert_eq!(read, bytes);
        assert!(!cookie.read(8, &mut read), "nothing is mapped there");
        assert!(!cookie.read(u64::MAX - 8, &mut read));
        let another = Cookie { value: [7; COOKIE], ..cookie };
        assert!(!another.is_readable() && !another.read(address, &mut read));
        assert!(!Cookie { process: u64::MAX, ..cookie }.is_readable());
    }
}

//! The build of nexar that a process runs.
//!
//! The sources define the meaning of the bytes that ranks exchange, so all ranks of a communicator
//! must run the same build. A Join begins with an `Introduction`, whose layout never changes from
//! build to build. A root of any build can therefore name the build of any rank:
//!
//! ```text
//! 0    4 magic "NXJ1"
//! 4    4 rank
//! 8    8 fingerprint of the sources (src/build.rs)
//! 16  16 version, UTF-8, padded with zeros
//! ```

use std::fmt;

use crate::transport::wire::Reader;

pub const INTRODUCTION_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"NXJ1";
const VERSION_BYTES: usize = 16;

/// Version and fingerprint of this library, as a string of the binary and in the log.
pub const THIS_BUILD: &str =
    concat!("nexar build ", env!("CARGO_PKG_VERSION"), "/", env!("PROTOCOL_FINGERPRINT"));

#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    pub fingerprint: u64,
    pub version: String,
}

/// The rank and the build at the beginning of a Join.
#[derive(Clone, Debug, PartialEq)]
pub struct Introduction {
    pub rank: usize,
    pub build: Build,
}

impl Build {
    pub fn of_this() -> Self {
        const FINGERPRINT: u64 = match u64::from_str_radix(env!("PROTOCOL_FINGERPRINT"), 16) {
            Ok(fingerprint) => fingerprint,
            Err(_) => panic!("src/build.rs writes 16 hexadecimal digits"),
        };
        Self { fingerprint: FINGERPRINT, version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Whether ranks of this build may join a communicator with this process.
    pub fn fits(&self) -> bool {
        self.fingerprint == Self::of_this().fingerprint
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nexar {}/{:016x}", self.version, self.fingerprint)
    }
}

impl Introduction {
    pub fn encode(&self) -> [u8; INTRODUCTION_BYTES] {
        let mut out = [0; INTRODUCTION_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&(self.rank as u32).to_le_bytes());
        out[8..16].copy_from_slice(&self.build.fingerprint.to_le_bytes());
        let version = &self.build.version.as_bytes()[..self.build.version.len().min(VERSION_BYTES)];
        out[16..16 + version.len()].copy_from_slice(version);
        out
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        (reader.array()? == MAGIC).then_some(())?;
        let (rank, fingerprint) = (reader.u32()? as usize, reader.u64()?);
        let version: [u8; VERSION_BYTES] = reader.array()?;
        let length = version.iter().position(|byte| *byte == 0).unwrap_or(VERSION_BYTES);
        version[length..].iter().all(|byte| *byte == 0).then_some(())?;
        let version = std::str::from_utf8(&version[..length]).ok()?;
        let printable = version.chars().all(|letter| letter.is_ascii_graphic());
        printable.then(|| Self { rank, build: Build { fingerprint, version: version.to_owned() } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_an_introduction_never_changes() {
        let build = Build { fingerprint: 0x0102_0304_0506_0708, version: "0.1.0".to_owned() };
        let introduction = Introduction { rank: 258, build };
        let bytes = *b"NXJ1\x02\x01\0\0\x08\x07\x06\x05\x04\x03\x02\x010.1.0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(introduction.encode(), bytes);
        assert_eq!(Introduction::decode(&mut Reader(&bytes)), Some(introduction));
        for (at, wrong) in [(0, b'M'), (17, b'\n'), (18, 0), (31, b'x')] {
            let mut bytes = bytes;
            bytes[at] = wrong;
            assert_eq!(Introduction::decode(&mut Reader(&bytes)), None, "byte {at}");
        }
    }

    #[test]
    fn the_log_names_the_build_that_is_compared() {
        let build = Build::of_this();
        assert_eq!(THIS_BUILD.replace("nexar build", "nexar"), build.to_string());
        assert!(build.version.len() <= VERSION_BYTES, "{} does not fit", build.version);
    }
}

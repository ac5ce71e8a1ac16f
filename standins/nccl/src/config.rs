//! ncclConfig_t and ncclCollConfig_t, in every version since 2.14.
//!
//! New versions add fields at the end. Invariant: a field is read only if the version in the
//! structure has it; else it counts as not set. The size of the structure does not suffice, because
//! the last field of one version may be in the padding of an older one.

use std::ffi::{c_char, c_int};
use std::ops::RangeInclusive;
use std::ptr::null;

use nexar::capi::types::{NEXAR_API_MAGIC, nexarConfig_t};

use crate::boundary::{Answer, Failure, wrong_argument, wrong_usage};
use crate::types::{Head, MAGIC, ncclCollConfig_t, ncclConfig_t};

const UNDEF_INT: c_int = c_int::MIN;

const FLAG: RangeInclusive<c_int> = 0..=1;
const NOT_NEGATIVE: RangeInclusive<c_int> = 0..=c_int::MAX;
const POSITIVE: RangeInclusive<c_int> = 1..=c_int::MAX;
const ANY: RangeInclusive<c_int> = c_int::MIN..=c_int::MAX;

/// A field of type int.
struct Field {
    name: &'static str,
    offset: usize,
    /// The first version that has the field.
    since: u32,
    allowed: RangeInclusive<c_int>,
}

const fn field(
    name: &'static str,
    offset: usize,
    since: u32,
    allowed: RangeInclusive<c_int>,
) -> Field {
    Field { name, offset, since, allowed }
}

const BLOCKING: Field = field("blocking", 16, 21400, FLAG);
const MIN_CTAS: Field = field("minCTAs", 24, 21700, POSITIVE);
const MAX_CTAS: Field = field("maxCTAs", 28, 21700, POSITIVE);
const SPLIT_SHARE: Field = field("splitShare", 40, 21800, FLAG);

/// The fields of ncclConfig_t that only matter to a GPU. They are checked as NCCL is known to check
/// them, and not used.
const CHECKED: [Field; 17] = [
    field("cgaClusterSize", 20, 21700, NOT_NEGATIVE),
    field("trafficClass", 44, 22500, ANY),
    field("collnetEnable", 56, 22700, FLAG),
    field("CTAPolicy", 60, 22700, 0..=3),
    field("shrinkShare", 64, 22700, FLAG),
    field("nvlsCTAs", 68, 22700, POSITIVE),
    field("nChannelsPerNetPeer", 72, 22800, POSITIVE),
    field("nvlinkCentricSched", 76, 22800, FLAG),
    field("graphUsageMode", 80, 22900, 0..=2),
    field("numRmaCtx", 84, 22900, NOT_NEGATIVE),
    field("maxP2pPeers", 88, 23000, POSITIVE),
    field("graphStreamOrdering", 92, 23005, FLAG),
    field("launchOrderImplicit", 96, 23100, FLAG),
    field("numRmaSig", 100, 23100, POSITIVE),
    field("rmaEagerInit", 104, 23100, FLAG),
    field("hostCftMode", 108, 23100, 1..=3),
    field("nvlsHostMode", 112, 23200, NOT_NEGATIVE),
];

/// commName, the only string that is used; netName, the other string, names a plugin of NCCL.
const COMM_NAME_AT: usize = 48;
const COMM_NAME_SINCE: u32 = 22700;

/// The sizes of the newest versions known here.
const CONFIG_BYTES: usize = 120;
const COLL_CONFIG_BYTES: usize = 72;

/// A copy of the known part of a structure. Bytes beyond the structure's own size are 0; `has`
/// keeps them from being read.
struct Given<const BYTES: usize> {
    bytes: [u8; BYTES],
    head: Head,
}

impl<const BYTES: usize> Given<BYTES> {
    /// # Safety
    /// `address` points to a structure that begins with a `Head` and is as long as its size says.
    unsafe fn read(address: *const Head, initialiser: &str) -> Result<Self, Failure> {
        // SAFETY: every version begins with a head.
        let head = unsafe { address.read_unaligned() };
        if head.magic != MAGIC || head.size < size_of::<Head>() {
            return Err(wrong_argument(format!("config was not initialised with {initialiser}")));
        }
        let mut bytes = [0; BYTES];
        let known = head.size.min(BYTES);
        // SAFETY: the structure has at least `known` bytes, and so has the copy.
        unsafe { address.cast::<u8>().copy_to_nonoverlapping(bytes.as_mut_ptr(), known) };
        Ok(Self { bytes, head })
    }

    fn has(&self, offset: usize, bytes: usize, since: u32) -> bool {
        self.head.version >= since && offset + bytes <= self.head.size
    }

    fn int(&self, field: &Field) -> Result<c_int, Failure> {
        if !self.has(field.offset, size_of::<c_int>(), field.since) {
            return Ok(UNDEF_INT);
        }
        let mut int = [0; 4];
        int.copy_from_slice(&self.bytes[field.offset..field.offset + 4]);
        let value = c_int::from_ne_bytes(int);
        if value != UNDEF_INT && !field.allowed.contains(&value) {
            let (least, most) = (field.allowed.start(), field.allowed.end());
            let what = format!("config.{} is {value}, not from {least} to {most}", field.name);
            return Err(wrong_argument(what));
        }
        Ok(value)
    }

    fn pointer(&self, offset: usize, since: u32) -> usize {
        if !self.has(offset, size_of::<usize>(), since) {
            return 0;
        }
        let mut pointer = [0; 8];
        pointer.copy_from_slice(&self.bytes[offset..offset + 8]);
        usize::from_ne_bytes(pointer)
    }

    fn check_ctas(&self, least: &Field, most: &Field) -> Answer {
        let (least, most) = (self.int(least)?, self.int(most)?);
        if least != UNDEF_INT && most != UNDEF_INT && least > most {
            let what = format!("config.minCTAs {least} is more than config.maxCTAs {most}");
            return Err(wrong_argument(what));
        }
        Ok(())
    }
}

/// A config of nexar without a set field.
pub(crate) const UNSET: nexarConfig_t = nexarConfig_t {
    size: size_of::<nexarConfig_t>(),
    magic: NEXAR_API_MAGIC,
    version: 0,
    blocking: UNDEF_INT,
    initTimeoutMs: UNDEF_INT,
    opTimeoutMs: UNDEF_INT,
    peerTimeoutMs: UNDEF_INT,
    splitShare: UNDEF_INT,
    name: null(),
};

/// Translates a config of NCCL into one of nexar. `None` for NULL, which both accept.
///
/// # Safety
/// `config` is NULL or points to a ncclConfig_t as long as its size says.
pub(crate) unsafe fn parse(config: *const ncclConfig_t) -> Result<Option<nexarConfig_t>, Failure> {
    if config.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller vouches.
    let given = unsafe { Given::<CONFIG_BYTES>::read(config.cast(), "NCCL_CONFIG_INITIALIZER") }?;
    for field in &CHECKED {
        given.int(field)?;
    }
    given.check_ctas(&MIN_CTAS, &MAX_CTAS)?;
    Ok(Some(nexarConfig_t {
        blocking: given.int(&BLOCKING)?,
        splitShare: given.int(&SPLIT_SHARE)?,
        name: given.pointer(COMM_NAME_AT, COMM_NAME_SINCE) as *const c_char,
        ..UNSET
    }))
}

/// An option of a vendor for one call.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extension {
    next: *const Self,
    vendor: c_int,
    option: c_int,
    value: usize,
}

const MAX_EXTENSIONS: usize = 1024;
const VENDORS: RangeInclusive<c_int> = 0..=(1 << 24) - 1;

/// Checks the config of one call. It is not used: it tunes GPU kernels, and nexar has no options of
/// its own, so that those of all vendors are ignored.
///
/// # Safety
/// `config` is NULL or points to a ncclCollConfig_t as long as its size says.
pub(crate) unsafe fn check_call(config: *const ncclCollConfig_t) -> Answer {
    if config.is_null() {
        return Ok(());
    }
    let initialiser = "NCCL_COLLCONFIG_INITIALIZER";
    // SAFETY: as the caller vouches.
    let given = unsafe { Given::<COLL_CONFIG_BYTES>::read(config.cast(), initialiser) }?;
    let since = 23100;
    given.int(&field("nvlsCTAs", 32, since, POSITIVE))?;
    given.int(&field("cgaClusterSize", 36, since, NOT_NEGATIVE))?;
    given.int(&field("forceAlgSelection", 48, since, FLAG))?;
    given.int(&field("CTAPolicy", 52, since, 0..=3))?;
    given.check_ctas(
        &field("minCTAs", 24, since, POSITIVE),
        &field("maxCTAs", 28, since, POSITIVE),
    )?;
    if given.pointer(64, 23200) != 0 {
        let what = "config.launchCompletionEvent must be NULL: nexar launches no kernel";
        return Err(wrong_usage(what));
    }
    let mut extension = given.pointer(16, since) as *const Extension;
    for _ in 0..MAX_EXTENSIONS {
        if extension.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's list of options ends with NULL.
        let option = unsafe { extension.read_unaligned() };
        if !VENDORS.contains(&option.vendor) {
            return Err(wrong_argument(format!("config.ext has vendor {}", option.vendor)));
        }
        extension = option.next;
    }
    Err(wrong_argument("config.ext does not end; it may be circular"))
}

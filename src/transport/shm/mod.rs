//! Shared memory: the ranks of one host read what the others publish, without a system call.
//!
//! Each rank has a shared segment (`segment`) that it alone writes and the others read. A
//! collective uses *epochs*, which all ranks of the host count alike. In an epoch a rank may
//! publish bytes, view what others have published, and then release the epoch. A rank that waits
//! spins for a while and then sleeps until the doorbell of its process rings (`doorbell`,
//! `dekker`). `handshake` exchanges the descriptors of the memory. Leaves lost ranks and failures
//! to the mesh. Invariant: the contents of a slot stay until every rank has released its epoch.

mod cache_locality;
mod dekker;
pub mod doorbell;
mod fast_path;
mod handshake;
mod message_pair;
mod message_ring;
mod messages;
mod payload_slots;
mod processors;
mod remote;
mod segment;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use crate::arena::{self, Arena, PeerArena};

use super::{EncodedHeader, Header, LANES, Lane, Location, Readers};
use cache_locality::CacheLocality;
use dekker::Doorbell;
use doorbell::ProcessDoorbell;
use handshake::{DESCRIPTORS, Descriptors};
use message_pair::MessagePair;
use remote::Cookie;
use segment::{LINES, SharedSegment, SlotView};

pub use fast_path::{FastEpoch, FastEpochs, FastHost, Started};
pub use handshake::HostGroup;
pub use payload_slots::PayloadPart;
pub use segment::{INLINE_BYTES, Inline, LONGEST_FAULT};
#[cfg(feature = "testing")]
pub use segment::{payload_slots, peer, ring};

/// Descriptors that a rank holds for each peer of its host during the handshake: the peer's
/// process, segment, doorbell and arena.
const DESCRIPTORS_PER_PEER: usize = DESCRIPTORS + 1;
/// Descriptors of the program and of the network.
const OTHER_DESCRIPTORS: usize = 32;
/// The descriptor table of every process has room for these.
const SMALLEST_TABLE: usize = 64;
const LARGEST_TABLE: usize = 4096;

/// Does before the handshake what may take the kernel seconds on a busy host. If a process has
/// several threads, the growth of its descriptor table and its registration for membarrier(2) each
/// wait for an RCU grace period (`synchronize_rcu`). During the handshake that wait would stop the
/// thread that drives the network, with 64 ranks in eight of them at a time. Here it stops the
/// caller, before any peer knows of this rank. A process without other threads does not wait at
/// all. `ranks`: all ranks of the communicator, also those on other hosts.
pub fn prepare(ranks: usize) {
    let Ok((_, descriptor)) = doorbell::own() else { return };
    let wanted = (DESCRIPTORS_PER_PEER * ranks + OTHER_DESCRIPTORS).min(LARGEST_TABLE);
    let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
    let last = wanted.min(limit).saturating_sub(1);
    if last >= SMALLEST_TABLE {
        // The table grows to the number of the copy, which is closed at once. If this fails, the
        // table grows later.
        let _ = fcntl_dupfd_cloexec(descriptor, last as i32);
    }
}

/// The memory that the ranks of a host share in one communicator. A rank's index counts the ranks
/// of this host.
pub struct Host {
    me: usize,
    crowded: bool,
    segments: Vec<SharedSegment>,
    /// The doorbells of the other ranks' processes. `None` for this rank.
    doorbells: Vec<Option<Arc<ProcessDoorbell>>>,
    /// Whether some doorbell needs a full barrier before it is rung.
    fences: bool,
    arenas: Vec<Option<Arc<PeerArena>>>,
    /// The cookies of all ranks' processes.
    cookies: Vec<Cookie>,
    /// The arena of this process, if it has one.
    arena: Option<&'static Arena>,
    lanes: [LaneEpochs; LANES],
    /// For messages to and from each rank.
    pairs: Vec<MessagePair>,
    locality: CacheLocality,
}

/// How often a rank polls before it yields or sets up a longer wait. Where ranks outnumber
/// processors, the awaited rank may need this rank's processor.
const SPINS: u32 = 500;
const SPINS_IN_A_CROWD: u32 = 10;
/// How often a rank on a fast path yields its processor where ranks outnumber processors: the
/// awaited rank may need this one. Not more often, because the caller holds locks.
const YIELDS: u32 = 3;

/// An offset in the arena of this process.
#[derive(Clone, Copy)]
pub struct ArenaOffset(u64);

/// Epochs by which a rank that publishes in place may be ahead of the slowest rank.
pub const MOST_IN_PLACE: u64 = LINES as u64;

/// The epochs of one lane.
#[derive(Default)]
struct LaneEpochs {
    next: AtomicU64,
    /// A lower bound of the epochs that all ranks have released.
    released: AtomicU64,
    /// Whether the current call has viewed memory in place, whose owner may give up its call
    /// meanwhile.
    has_viewed: AtomicBool,
}

impl Host {
    /// Exchanges descriptors with the other ranks of the host. Must be called inside the runtime.
    pub async fn connect(group: &HostGroup<'_>) -> std::io::Result<Self> {
        let arena = arena::own().ok();
        let own = create_segment(arena, group.keys.len());
        let received = handshake::exchange_descriptors(
            group,
            own.as_ref().ok().map(|(_, descriptors)| descriptors),
        )
        .await;
        let (mut own, received) = (Some(own?.0), received?);
        let mut host = Self {
            me: group.index,
            crowded: false,
            segments: Vec::new(),
            doorbells: Vec::new(),
            fences: doorbell::own()?.0.needs_fence(),
            arenas: Vec::new(),
            cookies: Vec::new(),
            arena,
            lanes: Default::default(),
            pairs: group.keys.iter().map(|_| MessagePair::default()).collect(),
            locality: CacheLocality::default(),
        };
        for descriptors in received {
            let Some([segment, doorbell, arena]) = descriptors else {
                host.segments.extend(own.take());
                host.doorbells.push(None);
                // A rank may also view what it has published in place itself.
                let own = arena.map(|arena| arena.descriptor().try_clone_to_owned()).transpose()?;
                host.arenas.push(own.map(PeerArena::new).transpose()?);
                continue;
            };
            host.segments.push(SharedSegment::of_peer(segment.as_fd(), group.keys.len())?);
            let doorbell = ProcessDoorbell::of_peer(doorbell.as_fd())?;
            host.fences |= doorbell.needs_fence();
            host.doorbells.push(Some(doorbell));
            host.arenas.push(Some(PeerArena::new(arena)?));
        }
        host.crowded = processors::are_fewer_than(&host.segments);
        host.cookies = host.segments.iter().map(SharedSegment::owner).collect();
        Ok(host)
    }

    /// The number of ranks of this host.
    #[inline]
    pub fn size(&self) -> usize {
        self.segments.len()
    }

    /// The index of this rank.
    pub fn me(&self) -> usize {
        self.me
    }

    /// Whether the readers of this rank's bytes share a cache with it.
    pub fn readers(&self) -> Readers {
        if self.locality.is_far() { Readers::Far } else { Readers::Near }
    }

    /// Whether the ranks outnumber the processors that they may use together.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// How often to poll before yielding.
    #[inline]
    fn spins(&self) -> u32 {
        if self.crowded { SPINS_IN_A_CROWD } else { SPINS }
    }

    /// Polls for some microseconds without yielding the processor.
    #[inline(always)]
    pub fn spin_until(&self, mut is_there: impl FnMut() -> bool) -> bool {
        for _ in 0..self.spins() {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// As `spin_until`, and in a crowd yields the processor some times between.
    #[inline]
    pub fn spin_and_yield_until(&self, mut is_there: impl FnMut() -> bool) -> bool {
        let mut yields = if self.is_crowded() { YIELDS } else { 0 };
        while !self.spin_until(&mut is_there) {
            if yields == 0 {
                return false;
            }
            yields -= 1;
            std::thread::yield_now();
        }
        true
    }

    /// Begins `count` epochs of a lane, as all ranks of the host do, and returns the first.
    pub fn begin_epochs(&self, lane: Lane, count: u64) -> u64 {
        self.lanes[lane.0].next.fetch_add(count, Ordering::Relaxed)
    }

    /// Epochs by which this rank may be ahead if it publishes this many bytes.
    #[inline]
    pub fn most_ahead(&self, bytes: usize) -> u64 {
        self.segments[self.me].most_ahead(bytes)
    }

    /// The rank whose release this rank must await before it publishes in an epoch, if it may be
    /// `ahead` epochs ahead. `None`: it may publish. `afresh`: this is not a repeated poll.
    #[inline(always)]
    pub fn awaited(&self, lane: Lane, epoch: u64, ahead: u64, afresh: bool) -> Option<usize> {
        let known = self.lanes[lane.0].released.load(Ordering::Relaxed);
        if known.saturating_add(ahead) > epoch {
            None
        } else {
            self.slowest(lane, epoch, ahead, afresh)
        }
    }

    /// As `awaited`, where epochs may have been left out: all ranks must have released the one in
    /// which this rank has last used the memory.
    fn slowest(&self, lane: Lane, epoch: u64, ahead: u64, afresh: bool) -> Option<usize> {
        let needed = self.needed(lane, epoch, ahead);
        let known = &self.lanes[lane.0].released;
        if known.load(Ordering::Relaxed) >= needed {
            return None;
        }
        let others = (0..self.segments.len()).filter(|index| *index != self.me);
        let released = others.map(|index| (index, move || self.segments[index].released(lane)));
        // Each of these cache lines was written last by its owner, and this rank reads it seldom,
        // so the time to read it tells whether they share a cache.
        let measures = afresh && ahead != LINES as u64;
        let (least, slowest) = if measures {
            self.locality.measure(released).min()?
        } else {
            released.map(|(index, read)| (read(), index)).min()?
        };
        known.store(least, Ordering::Relaxed);
        (least < needed).then_some(slowest)
    }

    /// How many epochs all ranks must have released before this rank publishes in one, if it may be
    /// `ahead` epochs ahead.
    pub fn needed(&self, lane: Lane, epoch: u64, ahead: u64) -> u64 {
        self.segments[self.me].last_use(lane, epoch, ahead != LINES as u64)
    }

    /// Whether a rank has released this many epochs.
    #[inline]
    pub fn has_released(&self, lane: Lane, index: usize, epochs: u64) -> bool {
        self.segments[index].released(lane) >= epochs
    }

    /// Publishes as many bytes as the header says. No rank may be `awaited`.
    #[inline]
    pub fn publish(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        fill: impl FnOnce(&mut [u8]),
    ) {
        self.segments[self.me].publish(lane, epoch, encoded, fill);
        self.ring();
    }

    /// Where others can view these bytes without a copy. `None`: they cannot.
    #[inline]
    pub fn arena_offset(&self, bytes: &[u8]) -> Option<ArenaOffset> {
        if bytes.len() <= INLINE_BYTES {
            return None; // a rank that copies them need not wait until all have viewed them
        }
        self.arena.and_then(|arena| arena.offset_of(bytes)).map(ArenaOffset)
    }

    /// Whether this process can read the memory of all others.
    pub fn reads_all(&self) -> bool {
        let others = (0..self.size()).filter(|index| *index != self.me);
        others.into_iter().all(|index| self.cookies[index].is_readable())
    }

    /// Whether process_vm_readv(2) can read these bytes, as far as this process can tell: some
    /// mappings, such as those of devices, cannot be read.
    pub fn is_readable_by_peers(&self, bytes: &[u8]) -> bool {
        let address = |edge| std::ptr::from_ref::<u8>(edge).addr() as u64;
        let edges = bytes.first().zip(bytes.last());
        edges.is_none_or(|(first, last)| {
            self.cookies[self.me].reads_both([address(first), address(last)])
        })
    }

    /// Publishes the address of bytes of this process.
    pub fn publish_address(&self, lane: Lane, epoch: u64, encoded: &EncodedHeader, bytes: &[u8]) {
        self.segments[self.me].publish_in_place(lane, epoch, encoded, bytes.as_ptr().addr() as u64);
        self.ring();
    }

    /// The address that a rank has published in an epoch. `Err`: the header that is there instead,
    /// if it can be decoded.
    pub fn published_address(
        &self,
        lane: Lane,
        epoch: u64,
        from: usize,
        encoded: &EncodedHeader,
    ) -> Result<u64, Option<Header>> {
        self.segments[from].published_address(lane, epoch, encoded)
    }

    /// Copies memory of a rank's process. False if it cannot be read.
    pub fn read(&self, lane: Lane, from: usize, address: u64, into: &mut [u8]) -> bool {
        self.lanes[lane.0].has_viewed.store(true, Ordering::Relaxed);
        self.cookies[from].read(address, into)
    }

    /// Copies bytes of a message out of a rank's arena. False if they cannot be read.
    pub fn read_message(&self, from: usize, location: Location, into: &mut [u8]) -> bool {
        let arena = self.arenas[from].as_ref();
        let bytes = arena.and_then(|arena| arena.bytes(location.offset(), into.len()));
        bytes.inspect(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    /// Where other ranks can read the bytes of a message. `None`: they cannot.
    pub fn location(&self, bytes: &[u8]) -> Option<Location> {
        self.arena_offset(bytes).map(|ArenaOffset(offset)| Location::new(offset))
    }

    /// Whether a rank may have ended its calls without waiting until what it has published was
    /// read.
    pub fn has_given_up(&self, index: usize) -> bool {
        self.segments[index].has_given_up()
    }

    /// The index of a rank that has given up a call, if the call in this lane has viewed memory in
    /// place since this was last called.
    #[inline]
    pub fn rank_that_gave_up(&self, lane: Lane) -> Option<usize> {
        let has_viewed = &self.lanes[lane.0].has_viewed;
        if !has_viewed.load(Ordering::Relaxed) {
            return None;
        }
        has_viewed.store(false, Ordering::Relaxed);
        let others = (0..self.size()).filter(|index| *index != self.me);
        others.into_iter().find(|index| self.segments[*index].has_given_up())
    }

    /// This rank no longer waits until others have viewed what it has published in place.
    pub fn give_up(&self) {
        self.segments[self.me].give_up();
    }

    /// As `publish`, with bytes that stay where they are.
    #[inline]
    pub fn publish_in_place(
        &self,
        lane: Lane,
        epoch: u64,
        encoded: &EncodedHeader,
        location: ArenaOffset,
    ) {
        self.segments[self.me].publish_in_place(lane, epoch, encoded, location.0);
        self.ring();
    }

    #[inline]
    pub fn has(&self, lane: Lane, epoch: u64, from: usize) -> bool {
        self.segments[from].has(lane, epoch)
    }

    /// What a rank has published in an epoch. `Err`: the header that is there instead, if it can be
    /// decoded.
    #[inline]
    pub fn view(
        &self,
        lane: Lane,
        epoch: u64,
        from: usize,
        encoded: &EncodedHeader,
    ) -> Result<&[u8], Option<Header>> {
        match self.segments[from].view(lane, epoch, encoded) {
            SlotView::Bytes(bytes) => Ok(bytes),
            SlotView::Elsewhere(offset) => {
                self.lanes[lane.0].has_viewed.store(true, Ordering::Relaxed);
                let bytes = encoded.bytes();
                let arena = self.arenas[from].as_ref();
                arena.and_then(|arena| arena.bytes(offset, bytes)).ok_or(None)
            }
            SlotView::Other(theirs) => Err(theirs),
        }
    }

    /// Whether a `view` has failed because this process cannot map the arena of a rank.
    pub fn lacks_arena(&self, of: usize) -> bool {
        self.arenas[of].as_ref().is_some_and(|arena| arena.cannot_be_mapped())
    }

    /// This rank views nothing more of this epoch.
    #[inline(always)]
    pub fn release(&self, lane: Lane, epoch: u64) {
        self.segments[self.me].release(lane, epoch + 1);
        self.ring();
    }

    /// Publishes the encoded fault of this rank's communicator, once.
    pub fn publish_fault(&self, frame: &[u8]) {
        self.segments[self.me].publish_fault(frame);
        self.ring();
    }

    /// What a rank has published as its fault, if anything.
    pub fn published_fault(&self, index: usize) -> Option<Vec<u8>> {
        self.segments[index].published_fault()
    }

    pub fn has_left(&self, index: usize) -> bool {
        self.segments[index].has_left()
    }

    /// This rank leaves the communicator.
    pub fn leave(&self) {
        self.segments[self.me].leave();
        self.ring();
    }

    /// Wakes the ranks that sleep, to poll again.
    #[inline(always)]
    fn ring(&self) {
        dekker::ring(self.doorbells.iter().flatten().map(Arc::as_ref), self.fences);
    }
}

/// Creates this rank's segment. Returns it with the descriptors for the other ranks.
fn create_segment(
    arena: Option<&Arena>,
    ranks: usize,
) -> std::io::Result<(SharedSegment, Descriptors)> {
    let (segment, descriptor) = SharedSegment::create(ranks)?;
    if let Some(cookie) = remote::own() {
        segment.cookie(cookie);
    }
    segment.set_processors(&processors::own());
    let doorbell = doorbell::own()?.1;
    // A rank without an arena publishes nothing in it, so any descriptor will do.
    let arena = arena.map_or(doorbell, Arena::descriptor);
    Ok((segment, [descriptor, doorbell.try_clone_to_owned()?, arena.try_clone_to_owned()?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Call;
    use crate::rank::Rank;
    use crate::transport::CallHistory;

    /// Ranks that share memory within one process.
    fn hosts(size: usize) -> Vec<Host> {
        let made: Vec<_> = (0..size).map(|_| create_segment(None, size).unwrap()).collect();
        let host = |me: usize| {
            let segment = |(_, descriptors): &(SharedSegment, Descriptors)| {
                SharedSegment::of_peer(descriptors[0].as_fd(), size).unwrap()
            };
            let mut segments: Vec<_> = made.iter().map(segment).collect();
            segments[me] = SharedSegment::create(size).unwrap().0;
            segments
        };
        let mut all: Vec<_> = (0..size).map(host).collect();
        for (me, (own, _)) in made.into_iter().enumerate() {
            all[me][me] = own;
        }
        let host = |(me, segments): (usize, Vec<SharedSegment>)| Host {
            me,
            crowded: false,
            doorbells: Vec::new(),
            fences: true,
            arenas: Vec::new(),
            cookies: segments.iter().map(SharedSegment::owner).collect(),
            arena: None,
            lanes: Default::default(),
            pairs: (0..size).map(|_| MessagePair::default()).collect(),
            locality: CacheLocality::default(),
            segments,
        };
        all.into_iter().enumerate().map(host).collect()
    }

    #[test]
    fn a_prepared_process_has_a_descriptor_table_large_enough_for_all_ranks() {
        let ranks = 150;
        prepare(ranks);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        assert!(size.trim().parse::<usize>().unwrap() >= DESCRIPTORS_PER_PEER * ranks);
    }

    fn encoded(seq: u64, bytes: usize) -> EncodedHeader {
        EncodedHeader::new(Header {
            seq,
            call: Call::barrier(),
            history: CallHistory::default(),
            step: 0,
            bytes,
        })
    }

    #[test]
    fn ranks_view_what_others_publish_in_every_epoch_however_far_ahead_they_are() {
        let hosts = hosts(3);
        std::thread::scope(|scope| {
            for host in &hosts {
                scope.spawn(move || {
                    for seq in 0..20_000 {
                        let (lane, encoded) = (Lane((seq % 4) as usize), encoded(seq, 8));
                        let wait = || loop {
                            match FastEpoch::begin(host, lane, &encoded, FastEpochs::ONE) {
                                Some(epoch) => break epoch,
                                None => std::thread::yield_now(),
                            }
                        };
                        let epoch = wait();
                        epoch.publish(&[seq * 10 + host.me as u64, 0, 0, 0]);
                        for at in (0..3).filter(|at| *at != host.me) {
                            let seen = loop {
                                match epoch.view(Rank(at)) {
                                    Some(inline) => break inline[0],
                                    None => std::thread::yield_now(),
                                }
                            };
                            assert_eq!(seen, seq * 10 + at as u64);
                        }
                        epoch.release();
                    }
                });
            }
        });
    }

    #[test]
    fn a_published_fault_is_read_by_the_others() {
        let hosts = hosts(2);
        assert_eq!(hosts[0].published_fault(1), None);
        for (rank, length) in [(0, 13), (1, LONGEST_FAULT)] {
            let frame: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            hosts[rank].publish_fault(&frame);
            assert_eq!(hosts[1 - rank].published_fault(rank), Some(frame));
        }
    }

    #[test]
    fn a_descriptor_of_another_call_is_not_taken_for_the_expected_one() {
        let hosts = hosts(2);
        let (mine, theirs, one) = (encoded(5, 8), encoded(5, 16), FastEpochs::ONE);
        FastEpoch::begin(&hosts[1], Lane(1), &theirs, one).unwrap().publish(&[1; 4]);
        assert!(FastEpoch::begin(&hosts[0], Lane(1), &mine, one).unwrap().view(Rank(1)).is_none());
        let found = hosts[0].view(Lane(1), 0, 1, &mine);
        assert_eq!(found.unwrap_err(), Some(theirs.header()));
    }

    #[test]
    fn published_addresses_are_read_and_it_is_known_whether_their_rank_gave_up() {
        let hosts = hosts(2);
        let bytes: Vec<u8> = (0..100_000).map(|index| (index % 251) as u8).collect();
        let encoded = encoded(0, bytes.len());
        assert!(hosts[0].reads_all() && hosts[1].reads_all());
        hosts[1].publish_address(Lane(0), 0, &encoded, &bytes);
        assert!(hosts[0].has(Lane(0), 0, 1));
        let address = hosts[0].published_address(Lane(0), 0, 1, &encoded).unwrap();
        let mut read = vec![0; 1000];
        assert!(hosts[0].read(Lane(0), 1, address + 5, &mut read));
        assert_eq!(read, bytes[5..1005]);
        assert_eq!(hosts[0].rank_that_gave_up(Lane(0)), None);
        hosts[0].read(Lane(0), 1, address, &mut read);
        hosts[1].give_up();
        assert_eq!(hosts[0].rank_that_gave_up(Lane(1)), None, "nothing was viewed there");
        assert_eq!(hosts[0].rank_that_gave_up(Lane(0)), Some(1));
    }
}

//! Shared memory: the ranks of one host read what the others have laid out, with no copy by the system
//! and no call to it.
//!
//! Each rank has a *shelf* (`shelf`) that it alone writes and the others read. A collective goes in
//! *rounds*, which all ranks of the host count alike: in each a rank may lay out bytes, look at what others
//! have laid out, and then pass the round. Ranks that wait look for a while and then sleep until their
//! *bell* (`bell`, `dekker`) rings. How the memory is made known is in `meeting`. Leaves to the mesh
//! who is lost and what has failed. Invariant: what lies in a slot stays until every rank has passed
//! its round.

pub mod bell;
mod dekker;
mod distance;
mod fast_path;
mod meeting;
mod processors;
mod remote;
mod shelf;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use crate::arena::{self, Arena, PeerArena};

use super::{Header, LANES, Label, Lane, Readers};
use bell::Bell;
use dekker::Doorbell;
use distance::Distance;
use meeting::{DESCRIPTORS, Descriptors};
use remote::Sign;
use shelf::{Found, LINES, Shelf};

pub use fast_path::{FastEpoch, FastHost, Started};
pub use meeting::Party;
pub use shelf::{FEW, Few, LONGEST_FAULT};

/// Descriptors that a rank holds for each peer of its host while they meet: the peer's process, and
/// what the peer has made.
const DESCRIPTORS_PER_PEER: usize = DESCRIPTORS + 1;
/// Descriptors of the program and of the network.
const OTHER_DESCRIPTORS: usize = 32;
/// What every process has room for.
const SMALLEST_TABLE: usize = 64;
const LARGEST_TABLE: usize = 4096;

/// Has the kernel do beforehand what may take seconds on a busy host. If a process has several
/// threads, the growth of its table of descriptors and its registration for barriers each wait for
/// an RCU grace period (`synchronize_rcu`). In the middle of the handshake that wait would stop the
/// thread that drives the network, and with 64 ranks eight at a time. Here it stops the caller,
/// before anybody knows of this rank; a process without other threads does not wait at all.
/// `ranks`: those of the communicator, of which some may be on other hosts.
pub fn prepare(ranks: usize) {
    let Ok((_, descriptor)) = bell::own() else { return };
    let wanted = (DESCRIPTORS_PER_PEER * ranks + OTHER_DESCRIPTORS).min(LARGEST_TABLE);
    let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
    let last = wanted.min(limit).saturating_sub(1);
    if last >= SMALLEST_TABLE {
        // The table grows to the number of the copy, which is closed at once. Without it the table
        // grows later.
        let _ = fcntl_dupfd_cloexec(descriptor, last as i32);
    }
}

/// What the ranks of a host share in one communicator. Ranks are counted among those of the host.
pub struct Host {
    me: usize,
    crowded: bool,
    shelves: Vec<Shelf>,
    /// Of the others.
    bells: Vec<Option<Arc<Bell>>>,
    /// Whether the bells of some need a barrier before they are rung.
    fences: bool,
    arenas: Vec<Option<Arc<PeerArena>>>,
    /// Of the others' processes.
    signs: Vec<Sign>,
    /// This process's own, if it has one.
    arena: Option<&'static Arena>,
    lanes: [Rounds; LANES],
    distance: Distance,
}

/// How often a rank looks before it gives way or does all that a longer wait needs. With more ranks than processors, who is
/// waited for may be waiting for this one's.
const LOOKS: u32 = 500;
const LOOKS_IN_A_CROWD: u32 = 10;

/// Where bytes lie in this process's arena.
#[derive(Clone, Copy)]
pub struct Place(u64);

/// A rank that shows bytes where they lie may be so many rounds ahead.
pub const MOST_SHOWN: u64 = LINES as u64;

/// Of one lane.
#[derive(Default)]
struct Rounds {
    next: AtomicU64,
    /// All ranks are known to have passed so many.
    passed: AtomicU64,
    /// Whether the call whose turn it is has seen another's memory, which its owner may give up meanwhile.
    has_seen: AtomicBool,
}

impl Host {
    /// Meets the other ranks of the host. Must be called inside the runtime.
    pub async fn meet(party: &Party<'_>) -> std::io::Result<Self> {
        let arena = arena::own().ok();
        let own = make(arena, party.keys.len());
        let met = meeting::meet(party, own.as_ref().ok().map(|(_, descriptors)| descriptors)).await;
        let (mut own, met) = (Some(own?.0), met?);
        let mut host = Self {
            me: party.index,
            crowded: false,
            shelves: Vec::new(),
            bells: Vec::new(),
            fences: bell::own()?.0.needs_fence(),
            arenas: Vec::new(),
            signs: Vec::new(),
            arena,
            lanes: Default::default(),
            distance: Distance::default(),
        };
        for descriptors in met {
            let Some([shelf, bell, arena]) = descriptors else {
                host.shelves.extend(own.take());
                host.bells.push(None);
                // What this rank shows it may look at too.
                let own = arena.map(|arena| arena.descriptor().try_clone_to_owned()).transpose()?;
                host.arenas.push(own.map(PeerArena::new).transpose()?);
                continue;
            };
            host.shelves.push(Shelf::of_peer(shelf.as_fd(), party.keys.len())?);
            let bell = Bell::of_peer(bell.as_fd())?;
            host.fences |= bell.needs_fence();
            host.bells.push(Some(bell));
            host.arenas.push(Some(PeerArena::new(arena)?));
        }
        host.crowded = processors::are_fewer_than(&host.shelves);
        host.signs = host.shelves.iter().map(Shelf::owner).collect();
        Ok(host)
    }

    /// How many ranks share it.
    #[inline]
    pub fn size(&self) -> usize {
        self.shelves.len()
    }

    /// This rank.
    pub fn me(&self) -> usize {
        self.me
    }

    /// Where those are that read what this rank lays out.
    pub fn readers(&self) -> Readers {
        if self.distance.is_far() { Readers::Far } else { Readers::Near }
    }

    /// Whether there are more ranks than processors that they may use together.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// How often to look.
    #[inline]
    fn looks(&self) -> u32 {
        if self.crowded { LOOKS_IN_A_CROWD } else { LOOKS }
    }

    /// Looks for some microseconds without giving up the processor.
    #[inline(always)]
    pub fn comes_in_a_moment(&self, is_there: impl Fn() -> bool) -> bool {
        for _ in 0..self.looks() {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// The first of the next rounds of a lane, which all ranks of the host begin.
    pub fn begin_rounds(&self, lane: Lane, count: u64) -> u64 {
        self.lanes[lane.0].next.fetch_add(count, Ordering::Relaxed)
    }

    /// How many rounds this rank may be ahead if it lays out so many bytes.
    #[inline]
    pub fn most_ahead(&self, bytes: usize) -> u64 {
        self.shelves[self.me].most_ahead(bytes)
    }

    /// Who must pass a round before this rank, if it may be so many `ahead`, can lay out something in this
    /// one. `None` if all have. `afresh`: this rank has not looked for it just before.
    #[inline(always)]
    pub fn awaited(&self, lane: Lane, round: u64, ahead: u64, afresh: bool) -> Option<usize> {
        let known = self.lanes[lane.0].passed.load(Ordering::Relaxed);
        if known.saturating_add(ahead) > round {
            None
        } else {
            self.slowest(lane, round, ahead, afresh)
        }
    }

    /// As `awaited`, after a look at all others.
    fn slowest(&self, lane: Lane, round: u64, ahead: u64, afresh: bool) -> Option<usize> {
        let others = (0..self.shelves.len()).filter(|index| *index != self.me);
        let passed = others.map(|index| (index, move || self.shelves[index].passed(lane)));
        // Each rank has written that line last, and this one asks for it now and then.
        let tells = afresh && ahead != LINES as u64;
        let (least, slowest) = if tells {
            self.distance.measure(passed).min()?
        } else {
            passed.map(|(index, read)| (read(), index)).min()?
        };
        self.lanes[lane.0].passed.store(least, Ordering::Relaxed);
        (least.saturating_add(ahead) <= round).then_some(slowest)
    }

    /// Whether a rank has passed a round.
    #[inline]
    pub fn has_passed(&self, lane: Lane, index: usize, round: u64) -> bool {
        self.shelves[index].passed(lane) > round
    }

    /// Lays out as many bytes as the label says. Nobody is `awaited`.
    #[inline]
    pub fn lay(&self, lane: Lane, round: u64, label: &Label, fill: impl FnOnce(&mut [u8])) {
        self.shelves[self.me].lay(lane, round, label, fill);
        self.ring();
    }

    /// Where others can see these bytes without a copy, if they can.
    #[inline]
    pub fn place_of(&self, bytes: &[u8]) -> Option<Place> {
        if bytes.len() <= FEW {
            return None; // a rank that copies them need not wait until all have viewed them
        }
        self.arena.and_then(|arena| arena.offset_of(bytes)).map(Place)
    }

    /// Whether this process can read the memory of all others.
    pub fn reads_all(&self) -> bool {
        let others = (0..self.size()).filter(|index| *index != self.me);
        others.into_iter().all(|index| self.signs[index].is_readable())
    }

    /// Whether others can read these bytes, as far as this process can tell: there is memory that the system
    /// reads for nobody.
    pub fn can_expose(&self, bytes: &[u8]) -> bool {
        let address = |edge| std::ptr::from_ref::<u8>(edge).addr() as u64;
        let edges = bytes.first().zip(bytes.last());
        edges.is_none_or(|(first, last)| {
            self.signs[self.me].reads_both([address(first), address(last)])
        })
    }

    /// Tells where bytes of this process lie.
    pub fn expose(&self, lane: Lane, round: u64, label: &Label, bytes: &[u8]) {
        self.shelves[self.me].show(lane, round, label, bytes.as_ptr().addr() as u64);
        self.ring();
    }

    /// Where a rank has exposed bytes; what else is there, if that is not what was expected.
    pub fn exposed(
        &self,
        lane: Lane,
        round: u64,
        from: usize,
        label: &Label,
    ) -> Result<u64, Option<Header>> {
        self.shelves[from].exposed(lane, round, label)
    }

    /// Reads what lies at an address of a rank's process. False if it cannot be read.
    pub fn read(&self, lane: Lane, from: usize, address: u64, into: &mut [u8]) -> bool {
        self.lanes[lane.0].has_seen.store(true, Ordering::Relaxed);
        self.signs[from].read(address, into)
    }

    /// Who has given up a call, if the one in this lane has seen memory of others since this was last asked.
    #[inline]
    pub fn who_gave_up(&self, lane: Lane) -> Option<usize> {
        let has_seen = &self.lanes[lane.0].has_seen;
        if !has_seen.load(Ordering::Relaxed) {
            return None;
        }
        has_seen.store(false, Ordering::Relaxed);
        let others = (0..self.size()).filter(|index| *index != self.me);
        others.into_iter().find(|index| self.shelves[*index].has_given_up())
    }

    /// This rank no longer waits until what it has shown was seen.
    pub fn give_up(&self) {
        self.shelves[self.me].give_up();
    }

    /// As `lay`, with bytes that stay where they are.
    #[inline]
    pub fn show(&self, lane: Lane, round: u64, label: &Label, place: Place) {
        self.shelves[self.me].show(lane, round, label, place.0);
        self.ring();
    }

    #[inline]
    pub fn has(&self, lane: Lane, round: u64, from: usize) -> bool {
        self.shelves[from].has(lane, round)
    }

    /// What a rank has laid out in a round; what else it is, if that is not what was expected.
    #[inline]
    pub fn find(
        &self,
        lane: Lane,
        round: u64,
        from: usize,
        label: &Label,
    ) -> Result<&[u8], Option<Header>> {
        match self.shelves[from].find(lane, round, label) {
            Found::Bytes(bytes) => Ok(bytes),
            Found::Elsewhere(offset) => {
                self.lanes[lane.0].has_seen.store(true, Ordering::Relaxed);
                let bytes = label.bytes();
                let arena = self.arenas[from].as_ref();
                arena.and_then(|arena| arena.bytes(offset, bytes)).ok_or(None)
            }
            Found::Other(theirs) => Err(theirs),
        }
    }

    /// This rank looks at nothing more of this round.
    #[inline(always)]
    pub fn pass(&self, lane: Lane, round: u64) {
        self.shelves[self.me].pass(lane, round + 1);
        self.ring();
    }

    /// Publishes the encoded fault of this rank's communicator, once.
    pub fn publish_fault(&self, frame: &[u8]) {
        self.shelves[self.me].publish_fault(frame);
        self.ring();
    }

    /// What a rank has published as its fault, if anything.
    pub fn published_fault(&self, index: usize) -> Option<Vec<u8>> {
        self.shelves[index].published_fault()
    }

    pub fn has_left(&self, index: usize) -> bool {
        self.shelves[index].has_left()
    }

    /// This rank takes part no more.
    pub fn leave(&self) {
        self.shelves[self.me].leave();
        self.ring();
    }

    /// Whoever sleeps looks again at what this rank has written.
    #[inline(always)]
    fn ring(&self) {
        dekker::ring(self.bells.iter().flatten().map(Arc::as_ref), self.fences);
    }
}

/// What this rank shares, and the descriptors that others see it by.
fn make(arena: Option<&Arena>, ranks: usize) -> std::io::Result<(Shelf, Descriptors)> {
    let (shelf, descriptor) = Shelf::create(ranks)?;
    if let Some(sign) = remote::own() {
        shelf.sign(sign);
    }
    shelf.set_processors(&processors::own());
    let bell = bell::own()?.1;
    // Who has no arena shows nothing in it, whatever descriptor is said to be its.
    let arena = arena.map_or(bell, Arena::descriptor);
    Ok((shelf, [descriptor, bell.try_clone_to_owned()?, arena.try_clone_to_owned()?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Call;
    use crate::rank::Rank;
    use crate::transport::Past;

    /// The ends of ranks that share memory in one process.
    fn hosts(size: usize) -> Vec<Host> {
        let made: Vec<_> = (0..size).map(|_| make(None, size).unwrap()).collect();
        let host = |me: usize| {
            let shelf = |(_, descriptors): &(Shelf, Descriptors)| {
                Shelf::of_peer(descriptors[0].as_fd(), size).unwrap()
            };
            let mut shelves: Vec<_> = made.iter().map(shelf).collect();
            shelves[me] = Shelf::create(size).unwrap().0;
            shelves
        };
        let mut all: Vec<_> = (0..size).map(host).collect();
        for (me, (own, _)) in made.into_iter().enumerate() {
            all[me][me] = own;
        }
        let host = |(me, shelves): (usize, Vec<Shelf>)| Host {
            me,
            crowded: false,
            bells: Vec::new(),
            fences: true,
            arenas: Vec::new(),
            signs: shelves.iter().map(Shelf::owner).collect(),
            arena: None,
            lanes: Default::default(),
            distance: Distance::default(),
            shelves,
        };
        all.into_iter().enumerate().map(host).collect()
    }

    #[test]
    fn a_prepared_process_has_a_table_for_the_descriptors_of_all_ranks() {
        let ranks = 150;
        prepare(ranks);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        assert!(size.trim().parse::<usize>().unwrap() >= DESCRIPTORS_PER_PEER * ranks);
    }

    fn label(seq: u64, bytes: usize) -> Label {
        Label::new(Header { seq, call: Call::barrier(), past: Past::default(), step: 0, bytes })
    }

    #[test]
    fn ranks_see_what_others_lay_out_in_every_round_however_far_ahead_they_are() {
        let hosts = hosts(3);
        std::thread::scope(|scope| {
            for host in &hosts {
                scope.spawn(move || {
                    for seq in 0..20_000 {
                        let (lane, label) = (Lane((seq % 4) as usize), label(seq, 8));
                        let wait = || loop {
                            match FastEpoch::begin(host, lane, &label) {
                                Some(epoch) => break epoch,
                                None => std::thread::yield_now(),
                            }
                        };
                        let epoch = wait();
                        epoch.publish(&[seq * 10 + host.me as u64, 0, 0, 0]);
                        for at in (0..3).filter(|at| *at != host.me) {
                            let seen = loop {
                                match epoch.view(Rank(at)) {
                                    Some(few) => break few[0],
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
    fn another_call_in_a_line_is_not_taken_for_the_expected_one() {
        let hosts = hosts(2);
        let (mine, theirs) = (label(5, 8), label(5, 16));
        FastEpoch::begin(&hosts[1], Lane(1), &theirs).unwrap().publish(&[1; 4]);
        assert!(FastEpoch::begin(&hosts[0], Lane(1), &mine).unwrap().view(Rank(1)).is_none());
        let found = hosts[0].find(Lane(1), 0, 1, &mine);
        assert_eq!(found.unwrap_err(), Some(theirs.header()));
    }

    #[test]
    fn what_a_rank_has_exposed_is_read_and_it_is_known_whether_it_gave_up() {
        let hosts = hosts(2);
        let bytes: Vec<u8> = (0..100_000).map(|index| (index % 251) as u8).collect();
        let label = label(0, bytes.len());
        assert!(hosts[0].reads_all() && hosts[1].reads_all());
        hosts[1].expose(Lane(0), 0, &label, &bytes);
        assert!(hosts[0].has(Lane(0), 0, 1));
        let address = hosts[0].exposed(Lane(0), 0, 1, &label).unwrap();
        let mut read = vec![0; 1000];
        assert!(hosts[0].read(Lane(0), 1, address + 5, &mut read));
        assert_eq!(read, bytes[5..1005]);
        assert_eq!(hosts[0].who_gave_up(Lane(0)), None);
        hosts[0].read(Lane(0), 1, address, &mut read);
        hosts[1].give_up();
        assert_eq!(hosts[0].who_gave_up(Lane(1)), None, "nothing was seen there");
        assert_eq!(hosts[0].who_gave_up(Lane(0)), Some(1));
    }
}
